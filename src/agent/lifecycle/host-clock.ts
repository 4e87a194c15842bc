import { neverAborted } from '../../base/abort.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { Clock } from '../../os/clock.ts'
import type { HostTime } from '../../os/devices/host-time.ts'
import type { System } from '../../os/process/system.ts'
import type { LifecycleRecord } from './lifecycle-record.ts'

/** What the host's clock says of the guest's. */
export interface Pause {
  readonly source: HostTime['source'] | 'call'
  /** For how long the guest stood still since the mark; undefined without a mark by the same device. */
  readonly stoodStillMs: number | undefined
  /** Above 0, the guest's clock is behind. */
  readonly behindMs: number
  /** A smaller difference says nothing. */
  readonly noticedMs: number
}

export interface HostClockParts {
  readonly system: Pick<System, 'hostTime' | 'setTime'>
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly record: LifecycleRecord
  /** Milliseconds since 1970. */
  readonly unixMs: () => number
  /** False where another init cares for the clock: then only the time of a call sets it. */
  readonly byDevice: boolean
}

/**
 * The one place that knows for how long the guest stood still. CLOCK_MONOTONIC and CLOCK_REALTIME stand with the guest, so
 * it compares them with the host's clock, which it reads only when it is asked.
 *
 * A host may keep local time in its RTC, so what that said at a mark, when the guest's clock was right, is the difference.
 * A clock of PTP is right itself.
 */
export class HostClock {
  readonly #parts: HostClockParts
  /** An RTC is open once at a time. */
  readonly #readings = new SerialQueue()

  constructor(parts: HostClockParts) {
    this.#parts = parts
  }

  /** To be called when the guest's clock is right: at the first start, and when it was set. Never throws. */
  async mark(): Promise<void> {
    const { clock, record, unixMs } = this.#parts
    const host = await this.#read()
    if (host === undefined) return
    record.change({
      clock: {
        source: host.source,
        hostMs: host.ns / MILLISECOND,
        monotonicMs: BigInt(Math.round(clock.monotonicMs())),
        realMs: BigInt(Math.round(unixMs())),
      },
    })
  }

  get isMarked(): boolean {
    return this.#parts.record.fields.clock !== undefined
  }

  /** `told` is the host's time now as a call says it. Undefined where nothing tells the host's time. */
  async look(told?: bigint): Promise<Pause | undefined> {
    const { byDevice, clock, record, unixMs } = this.#parts
    const host = await this.#read()
    const [monotonicMs, realMs] = [clock.monotonicMs(), unixMs()]
    const mark = record.fields.clock
    const isMarked = mark !== undefined && mark.source === host?.source
    const hostMs = host && Number(host.ns) / 1e6
    const stoodStillMs =
      isMarked && hostMs !== undefined
        ? Math.max(0, hostMs - Number(mark.hostMs) - (monotonicMs - Number(mark.monotonicMs)))
        : undefined
    if (told !== undefined && host?.source !== 'ptp') {
      return { source: 'call', stoodStillMs, behindMs: Number(told) / 1e6 - realMs, noticedMs: CALL_LATE }
    }
    if (host === undefined || hostMs === undefined || !byDevice) return undefined
    const before = isMarked && host.source === 'rtc' ? Number(mark.hostMs - mark.realMs) : 0
    const behindMs = hostMs - realMs - before
    // Both readings may be late.
    return { source: host.source, stoodStillMs, behindMs, noticedMs: 2 * host.precisionMs }
  }

  #read(): Promise<HostTime | undefined> {
    return this.#readings.run(() => this.#parts.system.hostTime(), neverAborted)
  }

  /** Moves the guest's clock. {@link mark} follows. Throws the kernel's error. */
  set({ behindMs }: Pause): void {
    const { system, unixMs } = this.#parts
    system.setTime(BigInt(Math.round((unixMs() + behindMs) * 1000)))
  }
}

const MILLISECOND = 1_000_000n

/** How much later than its sending a call may arrive, in milliseconds. */
const CALL_LATE = 100

export function isBehind(pause: Pause | undefined): pause is Pause {
  return pause !== undefined && Math.abs(pause.behindMs) > pause.noticedMs
}
