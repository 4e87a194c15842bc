import type { Operation, OperationStep } from '../../../gen/microvm/instance/v1/instance.ts'

/** Of an instance. */
const MOST_OPERATIONS = 8
const MOST_STEPS = 64
const MOST_TEXT = 300
/** Of a word of the guest. */
const MOST_WORD = 64

/** When a guest stood still and its callers waited, in milliseconds since 1970; 0 where that did not begin. */
export interface StandingSince {
  readonly stoppedMs: number
  readonly detachedMs: number
}

/** A step of the guest's own repair, as its agent tells it. */
export interface GuestStep {
  readonly name: string
  readonly state: string
  readonly durationMs: bigint
}

/** The steps of an operation as they happen, with how long the guest stood still, and its callers waited. */
export class Timeline {
  readonly kind: 'suspend' | 'snapshot' | 'resume' | 'revert' | 'clone' | 'move' | 'arrival' | 'drain'
  readonly #startedMs = Date.now()
  readonly #begun = performance.now()
  readonly #steps: OperationStep[] = []
  #stopped: number | undefined
  #resumed: number | undefined
  #detached: number | undefined
  #answered: number | undefined

  constructor(kind: Timeline['kind']) {
    this.kind = kind
    if (kind !== 'suspend' && kind !== 'snapshot' && kind !== 'move' && kind !== 'drain') this.begin('check')
    if (kind === 'clone' || kind === 'revert') [this.#stopped, this.#detached] = [0, 0]
  }

  /** Of a resume, or an arrival: what was left elsewhere. */
  stoodSince({ stoppedMs, detachedMs }: StandingSince = { stoppedMs: 0, detachedMs: 0 }): void {
    if (stoppedMs === 0) return
    // A saved machine stood still before its resume; one that arrives does so meanwhile, by the clock of another host.
    const [least, most] = this.kind === 'arrival' ? [0, this.#now()] : [Number.NEGATIVE_INFINITY, 0]
    const at = (ms: number) => Math.min(most, Math.max(least, ms - this.#startedMs))
    this.#stopped = at(stoppedMs)
    this.#detached = at(detachedMs || stoppedMs)
  }

  /** Ends the step before. */
  begin(name: string): void {
    const now = this.#now()
    this.#end(now)
    if (this.#steps.length < MOST_STEPS)
      this.#steps.push({ name, guest: false, startUs: us(now), durationUs: 0n, state: '' })
    if (name === 'detach') this.#detached ??= now
  }

  /** Steps that have just ended, one after the other, below the present one. None takes longer than the operation until now. */
  guest(steps: readonly GuestStep[]): void {
    const now = this.#now()
    const own = steps
      .slice(0, MOST_STEPS - this.#steps.length)
      .map((step) => ({ ...step, ms: Math.min(Number(step.durationMs), now) }))
    let at = Math.max(0, now - own.reduce((sum, { ms }) => sum + ms, 0))
    for (const { ms, name, state } of own) {
      const words = { name: name.slice(0, MOST_WORD), state: state.slice(0, MOST_WORD) }
      this.#steps.push({ ...words, guest: true, startUs: us(at), durationUs: us(ms) })
      at += ms
    }
  }

  /** By QEMU's events. */
  event(name: string): void {
    if (name === 'RESUME') this.#resumed = this.#now()
    if (name !== 'STOP' || (this.#stopped !== undefined && this.#resumed === undefined)) return
    // A guest that has stood still before has done so for that much longer.
    const stood = (this.#resumed ?? 0) - (this.#stopped ?? 0)
    this.#stopped = this.#now() - stood
    this.#resumed = undefined
  }

  /** The guest's agent answers callers again. */
  answered(): void {
    this.#answered ??= this.#now()
  }

  /** Which of the steps goes on, or was the last; -1 before the first. */
  get present(): number {
    return this.#steps.findLastIndex(({ guest }) => !guest)
  }

  get since(): StandingSince {
    const at = (time: number | undefined) => (time === undefined ? 0 : Math.round(this.#startedMs + time))
    return { stoppedMs: at(this.#stopped), detachedMs: at(this.#detached ?? this.#stopped) }
  }

  /** Until now, where the guest still stands and callers still wait. */
  operation(failure = ''): Operation {
    const now = this.#now()
    this.#end(now)
    const last = this.#answered ?? this.#resumed ?? now
    const detached = this.#detached ?? this.#stopped
    return {
      ...{ kind: this.kind, startedMs: BigInt(this.#startedMs), durationUs: us(now) },
      failure: failure.slice(0, MOST_TEXT),
      steps: this.#steps.map((step) => ({ ...step })),
      stoppedUs: this.#stopped === undefined ? 0n : us((this.#resumed ?? now) - this.#stopped),
      waitingUs: detached === undefined ? 0n : us(last - detached),
    }
  }

  #end(now: number): void {
    const step = this.#steps.findLast(({ guest }) => !guest)
    if (step === undefined || step.state !== '') return
    step.durationUs = us(now) - step.startUs
    step.state = 'done'
  }

  #now(): number {
    return performance.now() - this.#begun
  }
}

function us(ms: number): bigint {
  return BigInt(Math.max(0, Math.round(ms * 1000)))
}

/** With one more, the oldest of too many left out; one that has begun is replaced by its end. */
export function withOperation(operations: readonly Operation[], next: Operation): Operation[] {
  const others = operations.filter(
    ({ kind, startedMs }) => kind !== next.kind || startedMs !== next.startedMs,
  )
  return [...others, next].slice(-MOST_OPERATIONS)
}
