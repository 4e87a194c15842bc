import { abortable } from '../base/abort.ts'
import { messageOf } from '../base/errors.ts'
import { inStep } from '../base/step.ts'
import type { Clock } from '../os/clock.ts'
import type { Uevent } from '../os/devices/uevent.ts'
import type { Uevents } from '../os/devices/uevents.ts'
import type { Files } from '../os/files/files.ts'
import type { DeviceDrivers } from './device-drivers.ts'
import type { PciBus } from './pci/pci-bus.ts'
import { SeenEvents } from './seen-events.ts'
import { timedOut } from './timed-out.ts'

export interface Hotplug extends DeviceWaitContext {
  readonly files: Files
  readonly pciBus: PciBus
}

export interface DeviceWaitContext {
  readonly uevents: Uevents
  readonly clock: Clock
  /** Setting `agent.hotplug_timeout`. */
  readonly timeoutMs: number
  /** Called after every wait. */
  readonly waited?: (ms: number, found: boolean) => void
  /** For the error of a timeout; left out when the device needs no driver. */
  readonly drivers?: Pick<DeviceDrivers, 'failures'>
}

export type Probe<T> = { readonly found: T } | { readonly missing: string }

export interface WantedDevice<T> {
  /** Completes the sentence "waiting for uevent of …". */
  readonly description: string
  /** Looks in sysfs. `latest` is the last matching event, which may name the device. */
  readonly probe: (latest: Uevent | undefined) => Promise<Probe<T>>
  /** Whether an event is a reason to probe again. */
  readonly matches: (event: Uevent) => boolean
  /** Probes again after this time without an event. */
  readonly retryMs?: number
  /** Lists the devices of the same kind in sysfs, for the error of a timeout. */
  readonly candidates?: () => Promise<readonly string[]>
  /** Makes the kernel scan for a late device; called with growing pauses. */
  readonly rescan?: () => Promise<void>
}

const RESCAN_AFTER_MS = 1000

/** How long a probe that is running at the timeout may still take: a found device is better than an error. */
const LAST_PROBE_MS = 500

/**
 * Waits until `probe` finds the device. It probes at once, and after every matching or lost event. Throws INTERNAL after the
 * timeout, with what is missing and the events, or the reason of `signal`, even while a probe or a rescan is stuck in the
 * kernel, which cannot be interrupted.
 */
export async function waitForDevice<T>(
  dependencies: DeviceWaitContext,
  wanted: WantedDevice<T>,
  signal: AbortSignal,
): Promise<T> {
  const { clock, waited } = dependencies
  const beganMs = clock.monotonicMs()
  let found = false
  try {
    const device = await inStep('device', wanted.description, () => wait(dependencies, wanted, signal))
    found = true
    return device
  } finally {
    waited?.(clock.monotonicMs() - beganMs, found)
  }
}

async function wait<T>(
  dependencies: DeviceWaitContext,
  wanted: WantedDevice<T>,
  signal: AbortSignal,
): Promise<T> {
  const { clock, timeoutMs, uevents, drivers } = dependencies
  const { description, candidates } = wanted
  // Listen before the first probe, so that a device that appears in between is not missed.
  const events = new SeenEvents(uevents, wanted.matches)
  const timers = new Timers(clock)
  const stuck = Promise.withResolvers<'held'>()
  let hasTimedOut = false
  timers.start(timeoutMs, () => {
    hasTimedOut = true
    rescan.stop()
    events.wake()
    timers.start(LAST_PROBE_MS, () => stuck.resolve('held'))
  })
  const rescan = lateRescan(dependencies, wanted, timers, events)
  let missing: string | undefined
  const failure = (stuckMs?: number) => {
    const driverFailures = drivers?.failures ?? []
    const seen = { missing, stuckMs, events, rescan: rescan.outcome, driverFailures }
    return timedOut(clock, { timeoutMs, description, candidates, ...seen })
  }
  try {
    for (;;) {
      const woken = events.next()
      const probedAtMs = clock.monotonicMs()
      const result = await abortable(Promise.race([wanted.probe(events.latest), stuck.promise]), signal)
      if (result === 'held') throw await failure(clock.monotonicMs() - probedAtMs)
      if ('found' in result) return result.found
      missing = result.missing
      if (hasTimedOut) throw await failure()
      const stopPause = timers.start(wanted.retryMs, () => events.wake())
      await abortable(woken, signal)
      stopPause()
    }
  } finally {
    timers.end()
    events.close()
  }
}

/** `outcome` is that of the last rescan; `stop` prevents further ones. */
interface LateRescan {
  outcome: string | undefined
  stop(): void
}

/** Starts a rescan when the device is late, then again with growing pauses, and wakes the wait after each. */
function lateRescan(
  { timeoutMs }: DeviceWaitContext,
  { rescan }: Pick<WantedDevice<unknown>, 'rescan'>,
  timers: Timers,
  events: SeenEvents,
): LateRescan {
  const late: LateRescan = { outcome: undefined, stop: () => {} }
  if (rescan === undefined || RESCAN_AFTER_MS >= timeoutMs) return late
  const rescanNow = async (pauseMs: number) => {
    late.outcome = 'has not ended'
    late.outcome = await rescan().then(() => 'done', messageOf)
    events.wake()
    // A device may be plugged in after this rescan.
    late.stop = timers.start(2 * pauseMs, () => void rescanNow(2 * pauseMs))
  }
  late.stop = timers.start(RESCAN_AFTER_MS, () => void rescanNow(RESCAN_AFTER_MS))
  return late
}

/** The timers of one wait, which end with it. Aborting a sleep for each would be slower than the rest of the cleanup. */
class Timers {
  readonly #clock: Clock
  readonly #running = new Set<() => void>()
  #isEnded = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Starts a timer and returns a function that stops it. Without `ms`, or after `end`, it never expires. */
  start(ms: number | undefined, expired: () => void): () => void {
    if (ms === undefined || this.#isEnded) return () => {}
    const stop = this.#clock.startTimer(ms, () => {
      this.#running.delete(stop)
      expired()
    })
    this.#running.add(stop)
    return () => {
      this.#running.delete(stop)
      stop()
    }
  }

  end(): void {
    this.#isEnded = true
    for (const stop of this.#running) stop()
  }
}
