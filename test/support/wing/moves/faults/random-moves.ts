import { setTimeout as delay } from 'node:timers/promises'
import type { MovesFigures } from '../../../../../scripts/test/moves-run.ts'
import { messageOf } from '../../../../../src/base/errors.ts'
import { State } from '../../../../../src/gen/microvm/instance/v1/instance.ts'
import { isBusy } from '../../../busy.ts'
import { type Fleet, HOSTS, type HostId } from '../fleet.ts'
import { History } from '../history.ts'
import {
  checkEnd,
  type Fault,
  type Happened,
  happen,
  nameOf,
  type StepFault,
  textOf,
  type Way,
} from './move-faults.ts'

/** After the end of all faults somebody runs the machine within this time (docs/migration.md). */
const BOUND_MS = 60_000
/** On a machine that has far more to do than it can. */
const BUSY_FACTOR = 5
/** How long a move without a fault takes at most. */
const MOVE_MS = 120_000
const LOOK_MS = 50
/** In which a machine that runs writes a record. */
const SOON_MS = 2000

/** A machine that moves between the hosts of a fleet, and what it has done so far. */
export class MovingMachine {
  readonly #fleet: Fleet
  readonly #history: History
  #at: HostId = 'a'

  constructor(fleet: Fleet) {
    this.#fleet = fleet
    this.#history = new History(fleet)
  }

  async boot(): Promise<void> {
    await this.#fleet.make(this.#at)
    await this.#settled(performance.now(), { holdersKilled: 0 })
  }

  /** Moves it once while a fault happens, and looks at all that it has done. Throws for what must not be. */
  async move(fault: Fault | StepFault): Promise<MovesFigures> {
    const began = performance.now()
    const way: Way = { source: this.#at, target: this.#at === 'a' ? 'b' : 'a' }
    let at = 'begin'
    const { reached, seen, go } = 'before' in fault ? this.#waitBefore(fault) : waitFor(fault)
    const moved = this.#fleet.move(way.source, way.target, (step) => {
      at = step === '' ? 'end' : step
      seen(step)
    })
    const answered = moved.catch(messageOf).then((failure) => {
      if (failure !== undefined) at = 'failed'
      return failure
    })
    const isReached = await Promise.race([reached.then(() => true), answered.then(() => false)])
    if ('before' in fault && !isReached) throw new Error(`not reached: ${await answered}`)
    await delay(fault.kind === 'none' || 'before' in fault ? 0 : fault.delayMs)
    const step = 'before' in fault ? fault.before : at
    const happened = await happen(this.#fleet, fault, way)
    go()
    const isInTime = 'before' in fault && (await endsWithin(answered, fault.lastMs))
    if (!('before' in fault)) await delay(fault.kind === 'none' ? 0 : fault.lastMs)
    await inTime(happened.heal(), 'the fault has not ended')
    const healed = performance.now()
    const failure = await inTime(answered, 'the move has not ended')
    if ('before' in fault) checkEnd(fault, { isInTime, failure })
    const { host, isKilled } = await this.#settled(healed, happened)
    const stoodMs = performance.now() - healed
    await this.#look(host)
    if (failure === undefined && host !== way.target && !isKilled)
      throw new Error(`said to have moved to ${way.target}, and runs at ${host}`)
    if (fault.kind === 'none' && (failure !== undefined || host !== way.target))
      throw new Error(`not moved: ${failure}`)
    const hasMoved = host === way.target
    this.#at = host
    return {
      ...{ kind: nameOf(fault), step, met: happened.met, text: textOf(fault) },
      ...{ count: 1, moved: hasMoved ? 1 : 0, ended: isKilled ? 1 : 0 },
      ...{ seconds: (performance.now() - began) / 1000, settledMs: stoodMs },
    }
  }

  /** As {@link waitFor}; the step begins with `go`. */
  #waitBefore({ before }: StepFault): ReturnType<typeof waitFor> {
    const [reached, gone] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const { gates } = this.#fleet
    let isHeld = false
    for (const host of HOSTS)
      gates[host].before = async (step) => {
        // The next move begins it at once.
        if (isHeld || step !== before) return
        isHeld = true
        reached.resolve()
        await gone.promise
      }
    return { reached: reached.promise, seen: () => {}, go: gone.resolve }
  }

  /** Waits until exactly one host has the machine, and that runs. One that was killed is started again. */
  async #settled(
    healed: number,
    happened: Pick<Happened, 'holdersKilled'>,
  ): Promise<{ readonly host: HostId; readonly isKilled: boolean }> {
    let until = healed + BOUND_MS * busyFactor()
    let isKilled = false
    for (;;) {
      const states = await Promise.all(
        HOSTS.map((host) => this.#fleet.stateOn(host).catch((error) => messageOf(error))),
      )
      const those = HOSTS.filter((_, index) => ![undefined, State.AWAITING].includes(states[index] as never))
      const [host, ...others] = those
      const state = host === undefined ? undefined : states[HOSTS.indexOf(host)]
      if (host !== undefined && others.length === 0 && isEnded(state)) {
        const hasLeaseEnded = state === State.TERMINATED
        if (!isKilled) this.#history.bootsAgain({ ...happened, hasLeaseEnded })
        isKilled = true
        if (await this.#starts(host)) {
          const before = performance.now()
          await this.#fleet.begin(host)
          until += performance.now() - before
        }
      } else if (host !== undefined && others.length === 0 && state === State.RUNNING) {
        const other = host === 'a' ? 'b' : 'a'
        // A daemon may not have learnt yet that the machine was killed.
        if (this.#fleet.pidsOf('qemu', other).length === 0 && (await this.#grows())) {
          await this.#known(until)
          await this.#prints(host, until)
          return { host, isKilled }
        }
      }
      if (performance.now() > until) {
        const found = HOSTS.map((each, index) => `${each}: ${states[index]}`).join(', ')
        throw new Error(`nobody runs the machine ${BOUND_MS} ms after the faults have ended: ${found}`)
      }
      await delay(LOOK_MS)
    }
  }

  async #starts(host: HostId): Promise<boolean> {
    return await this.#fleet.run(host).then(
      () => true,
      () => false,
    )
  }

  /** Whether the journal has more records soon. */
  async #grows(): Promise<boolean> {
    this.#history.lookAtJournal()
    const { length } = this.#history
    const until = performance.now() + SOON_MS
    while (this.#history.length === length) {
      if (performance.now() > until) return false
      await delay(LOOK_MS)
      this.#history.lookAtJournal()
    }
    return true
  }

  /** Waits for the records that there are. */
  async #prints(host: HostId, until: number): Promise<void> {
    const { length } = this.#history
    for (;;) {
      await this.#history.lookAtConsole(host)
      if (this.#history.printed >= length) return
      if (performance.now() > until)
        throw new Error(`the journal has ${length} records, and ${this.#history.printed} were printed`)
      await delay(LOOK_MS)
    }
  }

  /** A host that was silent for too long is forgotten, until it is heard of again. */
  async #known(until: number): Promise<void> {
    for (;;) {
      const known = await this.#fleet.hostsKnownTo('a').catch((): readonly string[] => [])
      if (HOSTS.every((host) => known.includes(host))) return
      if (performance.now() > until) throw new Error(`the controllers know only ${known}`)
      await delay(LOOK_MS)
    }
  }

  async #look(host: HostId): Promise<void> {
    await this.#history.lookAtConsole(host)
    this.#history.lookAtChain(host)
  }
}

/** QEMU was killed, or its lease has ended. */
function isEnded(state: unknown): boolean {
  return state === State.STOPPED || state === State.TERMINATED
}

/** Resolves once the step of a fault has begun; `end` is after the last one. */
function waitFor({ step }: Fault): {
  readonly reached: Promise<void>
  readonly go: () => void
  seen(step: string): void
} {
  const { promise: reached, resolve } = Promise.withResolvers<void>()
  return {
    reached,
    go: () => {},
    seen: (begun) => {
      if (begun === (step === 'end' ? '' : step)) resolve()
    },
  }
}

async function endsWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const over = new AbortController()
  const late = delay(ms, false, { signal: over.signal }).catch(() => false)
  const isInTime = await Promise.race([work.then(() => true), late])
  over.abort()
  return isInTime
}

async function inTime<Answer>(work: Promise<Answer>, failure: string): Promise<Answer> {
  const over = new AbortController()
  const late = delay(MOVE_MS * busyFactor(), undefined, { signal: over.signal }).then(() =>
    Promise.reject(new Error(`${failure} in ${MOVE_MS} ms`)),
  )
  late.catch(() => {})
  try {
    return await Promise.race([work, late])
  } finally {
    over.abort()
  }
}

function busyFactor(): number {
  return isBusy() ? BUSY_FACTOR : 1
}
