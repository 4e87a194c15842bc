import { withTimeout } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { type GetResumeResponse, ResumedRequest } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Repair } from '../../gen/state/lifecycle.ts'
import type { Clock } from '../../os/clock.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { LifecycleRecord } from './lifecycle-record.ts'

export type Trigger = 'call' | 'device' | 'kernel'

/** A repair under way, as its steps see it. */
export interface RepairUnderWay {
  readonly number: bigint
  readonly trigger: Trigger
  readonly request: Readonly<ResumedRequest>
  /** When it was asked for, in nanoseconds of CLOCK_BOOTTIME. */
  readonly askedNs: bigint
  /** The connection of the call; empty for other triggers. */
  readonly peer: string
  /** What the steps find out. */
  readonly told: Pick<GetResumeResponse, 'clockStepMs' | 'randomness' | 'stoodStillMs'>
  /** The steps that have failed so far. */
  readonly failed: readonly string[]
}

export interface StepOutcome {
  readonly state: 'done' | 'skipped'
  readonly reason?: string
}

/** A step that throws has failed, and the next one follows. After the death of an agent it runs again. */
export interface RepairStep {
  readonly name: string
  readonly boundMs: number
  readonly run: (repair: RepairUnderWay, signal: AbortSignal) => Promise<StepOutcome>
}

export interface RepairsParts {
  readonly record: LifecycleRecord
  readonly steps: readonly RepairStep[]
  readonly events: Pick<EventLog, 'add'>
  readonly log: Logger
  readonly clock: Clock
}

const MOST_KEPT = 16
/** More calls than this wait for their repairs only where a host makes up generations. */
const MOST_WAITING = 4

/**
 * The repairs of this guest: one at a time, in the order in which they were asked for. Each is written down before it is
 * answered and after each step, so that the next agent goes on with it.
 */
export class Repairs {
  readonly #parts: RepairsParts
  readonly #changes = new Changes()
  #isAtWork = false

  constructor(parts: RepairsParts) {
    this.#parts = parts
  }

  /** Goes on with the repairs of the previous agent, and tells their steps once more. */
  restore(): void {
    for (const { told } of this.#open()) {
      for (const step of told?.steps ?? []) this.#tellStep(told?.number ?? 0n, step)
    }
    void this.#work()
  }

  /**
   * Returns the number of the repair; that of an earlier one for its generation, or of one that waits for the same trigger,
   * which has no generation. Throws RESOURCE_EXHAUSTED when too many calls wait.
   */
  begin(
    trigger: Trigger,
    request: Partial<ResumedRequest>,
    asked: { readonly ns: bigint; readonly peer: string },
  ): bigint {
    const { record } = this.#parts
    const { repairs } = record.fields
    const { generation = '' } = request
    const same = generation === '' ? undefined : repairs.find(({ told }) => told?.generation === generation)
    const waiting = this.#open().filter(({ told }) => told?.trigger === trigger && told.steps.length === 0)
    const earlier = same ?? (trigger === 'call' ? undefined : waiting[0])
    if (earlier?.told !== undefined) return earlier.told.number
    if (waiting.length >= MOST_WAITING) {
      throw new AgentError(
        'RESOURCE_EXHAUSTED',
        `repairs: ${waiting.length} wait, want at most ${MOST_WAITING}`,
      )
    }
    const number = (repairs.at(-1)?.told?.number ?? 0n) + 1n
    const told: GetResumeResponse = {
      ...{ number, generation, trigger, state: 'running', randomness: 'unknown' },
      ...{ clockStepMs: undefined, steps: [], stoodStillMs: undefined },
    }
    const repair = { told, request: ResumedRequest.fromPartial(request), askedNs: asked.ns, peer: asked.peer }
    record.change({ repairs: shortened([...repairs, repair]) })
    this.#parts.log.info('repair begun', { repair: `${number}`, trigger })
    void this.#work()
    return number
  }

  /** The last one for 0. Throws NOT_FOUND. */
  get(number: bigint): GetResumeResponse {
    const { repairs } = this.#parts.record.fields
    const found = number === 0n ? repairs.at(-1) : repairs.find(({ told }) => told?.number === number)
    if (found?.told !== undefined) return found.told
    const text = number === 0n ? 'repairs: there was none yet' : `number: no repair ${number} is known`
    throw new AgentError('NOT_FOUND', text)
  }

  /** As {@link get}, once the repair has ended or `timeoutMs` have passed. */
  async waitFor(number: bigint, timeoutMs: number, signal: AbortSignal): Promise<GetResumeResponse> {
    const { number: known } = this.get(number)
    const late = new AbortController()
    const stopTimer = this.#parts.clock.startTimer(timeoutMs, () => late.abort())
    try {
      while (timeoutMs > 0 && this.get(known).state === 'running' && !late.signal.aborted)
        await this.#changes.next(AbortSignal.any([signal, late.signal]))
    } catch (error) {
      if (!late.signal.aborted) throw error
    } finally {
      stopTimer()
    }
    return this.get(known)
  }

  #open(): readonly Repair[] {
    return this.#parts.record.fields.repairs.filter(({ told }) => told?.state === 'running')
  }

  /** Never rejects. */
  async #work(): Promise<void> {
    if (this.#isAtWork) return
    this.#isAtWork = true
    // The call that began it is answered first.
    await Promise.resolve()
    try {
      for (let [next] = this.#open(); next !== undefined; [next] = this.#open()) await this.#repair(next)
    } finally {
      this.#isAtWork = false
    }
  }

  async #repair({ told, request, askedNs, peer }: Repair): Promise<void> {
    if (told === undefined) return
    const { steps, log, clock } = this.#parts
    const { number } = told
    const beganMs = clock.monotonicMs()
    const found = { ...told, steps: [...told.steps] }
    for (const step of steps.slice(found.steps.length)) {
      const failed = found.steps.filter(({ state }) => state === 'failed').map(({ name }) => name)
      const under: RepairUnderWay = {
        ...{ number, trigger: triggerOf(told.trigger), request: request ?? ResumedRequest.create() },
        ...{ askedNs, peer, told: found, failed },
      }
      const outcome = await this.#step(step, under)
      found.steps.push(outcome)
      const isLast = found.steps.length === steps.length
      if (isLast) found.state = outcome.state === 'failed' ? 'failed' : 'ready'
      this.#save(found, step.name === SEEDED_BY)
      this.#tellStep(number, outcome)
    }
    const ms = (clock.monotonicMs() - beganMs).toFixed(0)
    const { randomness, generation } = found
    log.log(found.state === 'ready' ? 'info' : 'error', 'repair ended', {
      ...{ repair: `${number}`, state: found.state, randomness, ms },
    })
    if (found.state === 'ready') this.#parts.events.add({ ready: { number, generation, randomness } })
    this.#changes.announce()
  }

  async #step(
    { name, boundMs, run }: RepairStep,
    repair: RepairUnderWay,
  ): Promise<GetResumeResponse['steps'][number]> {
    const { clock, log } = this.#parts
    const beganMs = clock.monotonicMs()
    const over = new AbortController()
    const late = () => new AgentError('DEADLINE_EXCEEDED', `not done within ${boundMs / 1000} s`)
    const outcome = await withTimeout(clock, boundMs, run(repair, over.signal), late).catch(
      (error: unknown) => ({ state: 'failed', reason: messageOf(error) }),
    )
    over.abort()
    const ms = clock.monotonicMs() - beganMs
    const { state, reason = '' } = outcome
    const fields = {
      repair: `${repair.number}`,
      step: name,
      state,
      ms: ms.toFixed(1),
      ...(reason && { reason }),
    }
    log.log(state === 'failed' ? 'warn' : 'info', 'repair step', fields)
    return { name, state, durationMs: BigInt(Math.round(ms)), reason }
  }

  /** `forgetsSeed`: the seed was used, and must not be used again. */
  #save(found: GetResumeResponse, forgetsSeed: boolean): void {
    const { record } = this.#parts
    const repairs = record.fields.repairs.map((each) => {
      if (each.told?.number !== found.number) return each
      const request = each.request && forgetsSeed ? { ...each.request, seed: new Uint8Array() } : each.request
      return { ...each, told: { ...found, steps: [...found.steps] }, request }
    })
    record.change({ repairs })
  }

  #tellStep(number: bigint, { name, state, durationMs, reason }: GetResumeResponse['steps'][number]): void {
    this.#parts.events.add({ repairStep: { number, name, state, durationMs, reason } })
  }
}

/** The step after which the seed is dropped. */
const SEEDED_BY = 'kernel_random'

/** Drops the oldest that has ended; one that a call has begun only where there is no other. */
function shortened(repairs: readonly Repair[]): Repair[] {
  if (repairs.length <= MOST_KEPT) return [...repairs]
  const ended = repairs.filter(({ told }) => told?.state !== 'running')
  const dropped = ended.find(({ told }) => told?.trigger !== 'call') ?? ended[0]
  return repairs.filter((each) => each !== dropped)
}

function triggerOf(text: string): Trigger {
  return text === 'device' || text === 'kernel' ? text : 'call'
}
