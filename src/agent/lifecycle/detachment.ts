import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type {
  AttachRequest,
  DetachRequest,
  MovedStream,
  StreamTotal,
} from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Clock } from '../../os/clock.ts'
import type { LifecycleRecord } from './lifecycle-record.ts'

/** The streams over ports. */
export interface PortStreams {
  /** Brings each to a stop between two bytes, and closes its connection. Resolves with what has passed. */
  detach(): Promise<readonly StreamTotal[]>
  /** What has passed until now. */
  totals(): readonly StreamTotal[]
  /** Connects those that have no connection. Resolves once they dial. */
  attach(moved: readonly MovedStream[]): Promise<void>
  /** Closes all connections that can be made again, and makes them. Resolves once they are dialled. */
  dialAgain(): Promise<void>
}

/** A call that has not been answered. */
export interface OpenCallView {
  readonly rpc: string
  readonly ids: Readonly<Record<string, unknown>>
  /** Whether it changes something, and whether its caller may repeat it. */
  readonly changes: boolean
  readonly hasKey: boolean
  readonly waits: boolean
  /** Ends a wait. */
  readonly interrupt: ((reason: AgentError) => void) | undefined
}

/** A call that is about to begin. */
export type NewCall = Pick<OpenCallView, 'changes' | 'hasKey' | 'rpc' | 'waits'>

export interface DetachmentParts {
  readonly calls: { list(): readonly OpenCallView[] }
  readonly streams: PortStreams
  readonly record: LifecycleRecord
  readonly clock: Clock
  readonly log: Logger
}

const DEFAULT_MS = 60_000
const LONGEST_MS = 600_000

/** Calls that speak of the loss itself. */
const LIFECYCLE = 'microvm.agent.v1.Lifecycle/'

/** The end of everything that a detachment protects. */
const DESTROY = 'grpc.AgentService/DestroySandbox'

/** Between Detach and Attach no stream moves a byte, and no call takes anything that its answer would carry. */
export class Detachment {
  readonly #parts: DetachmentParts
  #isDetached = false
  #stopTimer: () => void = () => {}

  constructor(parts: DetachmentParts) {
    this.#parts = parts
  }

  /** Throws INVALID_ARGUMENT for too long a time, FAILED_PRECONDITION naming a call that changes something. */
  async detach({ timeoutMs }: Pick<DetachRequest, 'timeoutMs'>): Promise<{ streams: StreamTotal[] }> {
    const { calls, streams, log } = this.#parts
    if (timeoutMs > LONGEST_MS)
      throw new AgentError('INVALID_ARGUMENT', `timeout_ms: ${timeoutMs}, want at most ${LONGEST_MS}`)
    const open = calls.list().filter(({ rpc }) => !rpc.startsWith(LIFECYCLE))
    const changing = open.find(({ changes, hasKey }) => changes && !hasKey)
    if (changing !== undefined)
      throw new AgentError('FAILED_PRECONDITION', `${nameOf(changing)}: is under way`)
    // From here on no other call begins, so the waits that end now are all.
    this.#standFor(timeoutMs === 0 ? DEFAULT_MS : timeoutMs)
    // Input with a key goes on: its caller repeats it.
    for (const { changes, waits, interrupt } of open) if (waits && !changes) interrupt?.(detached())
    try {
      const totals = await streams.detach()
      log.info('streams detached', { count: totals.length })
      return { streams: [...totals] }
    } catch (error) {
      await this.attach({ streams: [] })
      throw error
    }
  }

  async attach({ streams: moved }: Pick<AttachRequest, 'streams'>): Promise<void> {
    const { record, streams, log } = this.#parts
    // It refuses ports that no stream has, and then nothing changes.
    await streams.attach(moved)
    if (!this.#isDetached) return
    this.#stopTimer()
    this.#isDetached = false
    record.change({ detachedUntilNs: 0n })
    log.info('streams attached')
  }

  /** A restore may have ended connections without the kernel's notice. A caller that has detached them attaches them. */
  async dialAgain(): Promise<void> {
    if (!this.#isDetached) await this.#parts.streams.dialAgain()
  }

  /** Goes on with what the previous agent began, once the streams are restored. */
  async restore(): Promise<void> {
    const { record, clock, streams, log } = this.#parts
    const { detachedUntilNs } = record.fields
    if (detachedUntilNs === 0n) return
    const leftMs = Number((detachedUntilNs - clock.boottimeNs()) / 1_000_000n)
    this.#standFor(Math.max(1, leftMs))
    try {
      await streams.detach()
    } catch (error) {
      log.error('streams not detached', { error: messageOf(error) })
      await this.attach({ streams: [] })
    }
  }

  /**
   * Throws UNAVAILABLE for a call that would take or change something while its answer may be lost. The sandbox's end ends
   * the detachment.
   */
  admit(call: NewCall): void {
    // Before the fields, which are looked up.
    if (!this.#isDetached) return
    const { changes, hasKey, rpc, waits } = call
    if (rpc.startsWith(LIFECYCLE)) return
    if (rpc === DESTROY) {
      this.#attachAll()
      return
    }
    if (waits || (changes && !hasKey)) throw detached()
  }

  #standFor(ms: number): void {
    const { record, clock, log } = this.#parts
    this.#stopTimer()
    this.#isDetached = true
    record.change({ detachedUntilNs: clock.boottimeNs() + BigInt(ms) * 1_000_000n })
    this.#stopTimer = clock.startTimer(ms, () => {
      log.warn('streams attached without a call', { ms })
      this.#attachAll()
    })
  }

  #attachAll(): void {
    this.attach({ streams: [] }).catch((error: unknown) =>
      this.#parts.log.error('streams not attached', { error: messageOf(error) }),
    )
  }
}

function detached(): AgentError {
  return new AgentError('UNAVAILABLE', 'Detach: the streams and their callers wait for Attach', {
    fault: 'caller',
  })
}

function nameOf({ rpc, ids }: OpenCallView): string {
  const of = ['containerId', 'execId'].flatMap((name) => (typeof ids[name] === 'string' ? [ids[name]] : []))
  const method = rpc.slice(rpc.lastIndexOf('/') + 1)
  return of.length === 0 ? method : `${method} of ${of.join('/')}`
}
