import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type {
  AttachRequest,
  DetachRequest,
  DetachResponse,
  GetResumeRequest,
  GetResumeResponse,
  ListStreamsResponse,
  ResumedRequest,
  ResumedResponse,
} from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Uevent } from '../../os/devices/uevent.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { Call } from '../../state/request.ts'
import { Detachment, type DetachmentParts, type NewCall } from './detachment.ts'
import { HostClock, isBehind, type Pause } from './host-clock.ts'
import { checkIdentity } from './identity.ts'
import { LifecycleRecord } from './lifecycle-record.ts'
import { type RepairParts, repairSteps, type UntrustedConnections } from './repair-steps.ts'
import { Repairs, type Trigger } from './repairs.ts'

export interface LifecycleParts
  extends Pick<RepairParts, 'frozen' | 'takeIdentity'>,
    Pick<DetachmentParts, 'calls' | 'streams'> {
  readonly os: Pick<Os, 'clock' | 'kernelLog' | 'system' | 'uevents'>
  readonly state: ConstructorParameters<typeof LifecycleRecord>[0]
  readonly events: EventLog
  readonly log: Logger
  /** Milliseconds since 1970. */
  readonly unixMs: () => number
  /** Whether this is the first agent since the boot. */
  readonly isFirst: boolean
  /** Whether the agent is alone responsible for the guest, or another init sets its clock. */
  readonly isInit: boolean
}

/** What the kernel says after another generation of the machine was seen (drivers/char/random.c). */
const FORKED = 'random: crng reseeded due to virtual machine fork'

/** The device type 19 of virtio is a socket device. */
const VSOCK = 'virtio:d00000013v'

const SEED_BYTES = 32
const MOST_SEED_BYTES = 4096
const GENERATION_BYTES = 128
const LONGEST_WAIT_MS = 60_000

/** How long after a look at the host's clock another broken connection is no reason for one. */
const LOOKS_APART_MS = 1_000

/** What a guest does about a loss of its wire, and after it stood still (docs/resume.md). */
export class Lifecycle {
  readonly #parts: LifecycleParts
  readonly #record: LifecycleRecord
  readonly #repairs: Repairs
  readonly #hostClock: HostClock
  readonly #detachment: Detachment
  #connections: UntrustedConnections | undefined
  #lookedMs = Number.NEGATIVE_INFINITY
  #isToldBehind = false

  constructor(parts: LifecycleParts) {
    const { os, state, events, log, isInit, unixMs } = parts
    const { clock, system } = os
    const record = new LifecycleRecord(state, log)
    const hostClock = new HostClock({ system, clock, record, unixMs, byDevice: isInit })
    const detachment = new Detachment({ ...parts, record, clock })
    const connections = () => this.#connections
    const clockWasSet = () => void this.clockWasSet()
    const steps = repairSteps({ ...parts, record, hostClock, streams: detachment, connections, clockWasSet })
    this.#parts = parts
    this.#record = record
    this.#hostClock = hostClock
    this.#detachment = detachment
    this.#repairs = new Repairs({ record, steps, events, log, clock })
  }

  detach(request: DetachRequest): Promise<DetachResponse> {
    return this.#detachment.detach(request)
  }

  async attach(request: AttachRequest): Promise<object> {
    await this.#detachment.attach(request)
    return {}
  }

  listStreams(): ListStreamsResponse {
    return { streams: [...this.#parts.streams.totals()] }
  }

  /** Throws UNAVAILABLE for a call that must not begin while the streams are detached. */
  admit(call: NewCall): void {
    this.#detachment.admit(call)
  }

  /** Throws INVALID_ARGUMENT for a wrong field. */
  async resumed(request: ResumedRequest, call: Pick<Call, 'ageMs' | 'peer'>): Promise<ResumedResponse> {
    checkResumed(request)
    const ns = this.#parts.os.clock.boottimeNs() - BigInt(Math.round(call.ageMs() * 1e6))
    return { number: this.#repairs.begin('call', request, { ns, peer: call.peer ?? '' }) }
  }

  getResume({ number, timeoutMs }: GetResumeRequest, signal: AbortSignal): Promise<GetResumeResponse> {
    if (timeoutMs > LONGEST_WAIT_MS)
      throw new AgentError('INVALID_ARGUMENT', `timeout_ms: ${timeoutMs}, want at most ${LONGEST_WAIT_MS}`)
    return this.#repairs.waitFor(number, timeoutMs, signal)
  }

  /** To be called before calls are served, once the streams are restored. */
  async restore(): Promise<void> {
    const { os, isFirst } = this.#parts
    if (!isFirst) this.#record.restore()
    // Lines of before are nothing to any agent, also when the first one has died before it could note this.
    if (this.#record.fields.kernelLogFromUs === 0n)
      this.#record.change({ kernelLogFromUs: BigInt(Math.round(os.clock.monotonicMs() * 1000)) })
    await this.#detachment.restore()
  }

  /**
   * To be called once calls are served: goes on with repairs, and follows what tells a restore. An agent after the first one reads
   * the kernel's log, which may be long, after `logMs`.
   */
  begin(connections: UntrustedConnections, logMs: number): void {
    const { os, isFirst } = this.#parts
    this.#connections = connections
    this.#repairs.restore()
    if (!this.#hostClock.isMarked) void this.clockWasSet()
    // A later agent looks for a line that came while there was none.
    if (isFirst) this.#followKernel(undefined)
    else os.clock.startTimer(logMs, () => this.#followKernel(this.#record.fields.kernelLogFromUs))
    os.uevents.listen({ event: (event) => this.#onDevice(event), error: () => {} })
  }

  #followKernel(fromUs: bigint | undefined): void {
    this.#parts.os.kernelLog.follow(fromUs, ({ sequence, text }) => {
      if (text !== FORKED || sequence < this.#record.fields.kernelLine) return
      this.#record.change({ kernelLine: sequence + 1n })
      this.#trigger('kernel')
    })
  }

  /** The guest's clock is right now. Never rejects. */
  async clockWasSet(): Promise<void> {
    this.#isToldBehind = false
    await this.#hostClock.mark().catch((error: unknown) => this.#logLook(error))
  }

  /** A connection has ended in the middle of a call: perhaps the guest stood still. Tells whether its clock is behind. */
  connectionBroke(): void {
    const { clock } = this.#parts.os
    if (clock.monotonicMs() - this.#lookedMs < LOOKS_APART_MS) return
    this.#lookedMs = clock.monotonicMs()
    this.#hostClock.look().then(
      (pause) => this.#tellBehind(pause),
      (error) => this.#logLook(error),
    )
  }

  /** What GetCapabilities says of the clock. */
  async clockFeature(): Promise<{
    readonly name: string
    readonly missing?: string
    readonly detail?: string
  }> {
    const pause = await this.#hostClock.look()
    if (pause === undefined) return { name: 'clock', detail: "nothing tells the host's" }
    const { behindMs, source } = pause
    if (!isBehind(pause)) return { name: 'clock', detail: `as the host's, by ${source}` }
    const side = behindMs > 0 ? 'behind' : 'ahead of'
    return { name: 'clock', missing: `${Math.abs(Math.round(behindMs))} ms ${side} the host's` }
  }

  #onDevice({ action, isNewGeneration, modalias }: Uevent): void {
    if (isNewGeneration === true) this.#trigger('kernel')
    if (!modalias.startsWith(VSOCK)) return
    if (action === 'remove') this.#trigger('device')
    // A new device ends what Detach began.
    if (action === 'bind')
      this.#detachment.attach({ streams: [] }).catch((error: unknown) => this.#logLook(error))
  }

  #trigger(trigger: Trigger): void {
    try {
      this.#repairs.begin(trigger, {}, { ns: this.#parts.os.clock.boottimeNs(), peer: '' })
    } catch (error) {
      this.#parts.log.error('repair not begun', { trigger, error: messageOf(error) })
    }
  }

  #tellBehind(pause: Pause | undefined): void {
    if (!isBehind(pause) || this.#isToldBehind) return
    this.#isToldBehind = true
    const behindMs = Math.round(pause.behindMs)
    this.#parts.log.warn('clock is behind the host', { ms: behindMs, by: pause.source })
    this.#parts.events.add({ clockBehind: { behindMs: BigInt(behindMs) } })
  }

  #logLook(error: unknown): void {
    this.#parts.log.warn("host's clock not read", { error: messageOf(error) })
  }
}

function checkResumed({ generation, seed, identity }: ResumedRequest): void {
  const bytes = Buffer.byteLength(generation)
  const wrong = (text: string) => new AgentError('INVALID_ARGUMENT', text)
  if (bytes === 0 || bytes > GENERATION_BYTES)
    throw wrong(`generation: ${bytes} bytes long, want 1 to ${GENERATION_BYTES}`)
  if (seed.length > 0 && (seed.length < SEED_BYTES || seed.length > MOST_SEED_BYTES))
    throw wrong(`seed: ${seed.length} bytes, want none or ${SEED_BYTES} to ${MOST_SEED_BYTES}`)
  if (identity !== undefined) checkIdentity(identity)
}
