import { abortable } from '../base/abort.ts'
import { messageOf } from '../base/errors.ts'
import type { Clock } from '../os/clock.ts'
import type { Uevent } from '../os/devices/uevent.ts'
import type { Uevents } from '../os/devices/uevents.ts'
import type { Files } from '../os/files/files.ts'
import type { DeviceDrivers } from './device-drivers.ts'
import type { PciBus } from './pci-bus.ts'
import { SeenEvents } from './seen-events.ts'
import { timedOut } from './timed-out.ts'

/** What finding devices needs. */
export interface HotplugDependencies extends WaitDependencies {
  readonly files: Files
  readonly pciBus: PciBus
}

/** What waiting for one needs. */
export interface WaitDependencies {
  readonly uevents: Uevents
  readonly clock: Clock
  /** How long a device is waited for (setting `agent.hotplug_timeout`). */
  readonly timeoutMs: number
  /** Which drivers could not be loaded, for the error of a time-out; left out where no driver is needed. */
  readonly drivers?: Pick<DeviceDrivers, 'failures'>
}

/** What one look at sysfs gives: the device, or what is not there yet. */
export type Probe<T> = { readonly found: T } | { readonly missing: string }

/** A device that is waited for. */
export interface WantedDevice<T> {
  /** Completes the sentence "waiting for uevent of …". */
  readonly description: string
  /** Looks into sysfs; `latest` is the last event that concerned the device, and may tell where to look. */
  readonly probe: (latest: Uevent | undefined) => Promise<Probe<T>>
  /** Whether another look is worth while after this event. */
  readonly matches: (event: Uevent) => boolean
  /** Looks again after so long even when no event came. */
  readonly lookAgainMs?: number
  /** What sysfs shows of the kind, for the error of a time-out. */
  readonly candidates?: () => Promise<readonly string[]>
  /** Has the kernel look for the device by itself: done when it has not come for a while, and then ever more seldom. */
  readonly rescan?: () => Promise<void>
}

/** How long a device may be late before the kernel is asked to look for it: events of other devices do not tell. */
const LATE_MS = 1000

/** How long a look that is going on when the time is over has to end: what it finds is better than an error. */
const LAST_LOOK_MS = 500

/**
 * Waits until `probe` finds its device. It looks at once, then again whenever an event that `concerns` it has come, or
 * events were lost: sysfs is what counts, an event only says when to look. Waits are independent of each other. Throws
 * INTERNAL after the time-out, with what was waited for and what was seen, or what `signal` is aborted with; both also
 * while the kernel holds a look or a rescan, which nobody can end.
 */
export async function waitForDevice<T>(
  dependencies: WaitDependencies,
  wanted: WantedDevice<T>,
  signal: AbortSignal,
): Promise<T> {
  const { clock, timeoutMs, uevents, drivers } = dependencies
  const { description, candidates } = wanted
  // Listening begins before the first look: what appears in between is not missed.
  const events = new SeenEvents(uevents, wanted.matches)
  const timers = new Timers(clock)
  const held = Promise.withResolvers<'held'>()
  let isOver = false
  timers.start(timeoutMs, () => {
    isOver = true
    rescan.stop()
    events.wake()
    timers.start(LAST_LOOK_MS, () => held.resolve('held'))
  })
  const rescan = lateRescan(dependencies, wanted, timers, events)
  let missing: string | undefined
  const failure = (heldMs?: number) => {
    const driverFailures = drivers?.failures ?? []
    const seen = { missing, heldMs, events, rescan: rescan.outcome, driverFailures }
    return timedOut(clock, { timeoutMs, description, candidates, ...seen })
  }
  try {
    for (;;) {
      const woken = events.next()
      const lookedAtMs = clock.monotonicMs()
      const result = await abortable(Promise.race([wanted.probe(events.latest), held.promise]), signal)
      if (result === 'held') throw await failure(clock.monotonicMs() - lookedAtMs)
      if ('found' in result) return result.found
      missing = result.missing
      if (isOver) throw await failure()
      const stopPause = timers.start(wanted.lookAgainMs, () => events.wake())
      await abortable(woken, signal)
      stopPause()
    }
  } finally {
    timers.end()
    events.close()
  }
}

/** How the last rescan ended, and how to ask for no more of them. */
interface LateRescan {
  outcome: string | undefined
  stop(): void
}

/** Asks for a rescan whenever it is time, and wakes the wait after it. */
function lateRescan(
  { timeoutMs }: WaitDependencies,
  { rescan }: Pick<WantedDevice<unknown>, 'rescan'>,
  timers: Timers,
  events: SeenEvents,
): LateRescan {
  const late: LateRescan = { outcome: undefined, stop: () => {} }
  if (rescan === undefined || LATE_MS >= timeoutMs) return late
  const rescanNow = async (pauseMs: number) => {
    late.outcome = 'has not ended'
    late.outcome = await rescan().then(() => 'done', messageOf)
    events.wake()
    // A device that was plugged in after one rescan waits for the next.
    late.stop = timers.start(2 * pauseMs, () => void rescanNow(2 * pauseMs))
  }
  late.stop = timers.start(LATE_MS, () => void rescanNow(LATE_MS))
  return late
}

/** The timers of one wait, which end with it. An aborted sleep each would take longer than all the rest of its end. */
class Timers {
  readonly #clock: Clock
  readonly #running = new Set<() => void>()
  #isEnded = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns how to stop it. One without a length never expires, and so does one that comes after the end. */
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
