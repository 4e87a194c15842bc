import { messageOf } from '../base/errors.ts'
import { raceSignal } from '../base/signals.ts'
import type { Clock, Files, Uevents } from '../os/os.ts'
import type { Uevent } from '../os/uevent.ts'
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
  readonly concerns: (event: Uevent) => boolean
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
  const events = new SeenEvents(uevents, wanted.concerns)
  const ended = new AbortController()
  const elapsed = after(clock, timeoutMs, ended.signal).then(() => 'elapsed' as const)
  const held = elapsed.then(() => after(clock, LAST_LOOK_MS, ended.signal)).then(() => 'held' as const)
  const rescan = lateRescan(dependencies, wanted, ended.signal, events)
  let missing: string | undefined
  const failure = (heldMs?: number) => {
    const driverFailures = drivers?.failures ?? []
    const seen = { missing, heldMs, events, rescan: rescan.outcome, driverFailures }
    return timedOut(clock, { timeoutMs, description, candidates, ...seen })
  }
  try {
    for (;;) {
      const event = events.next()
      const lookedAtMs = clock.monotonicMs()
      const result = await raceSignal(Promise.race([wanted.probe(events.latest), held]), signal)
      if (result === 'held') throw await failure(clock.monotonicMs() - lookedAtMs)
      if ('found' in result) return result.found
      missing = result.missing
      const pause = pauseOf(clock, wanted.lookAgainMs)
      const woken = raceSignal(Promise.race([event, elapsed, pause.over]), signal).finally(pause.end)
      if ((await woken) === 'elapsed') throw await failure()
    }
  } finally {
    ended.abort()
    events.close()
  }
}

/** Asks for a rescan whenever it is time, and wakes the wait after it. */
function lateRescan(
  { clock, timeoutMs }: WaitDependencies,
  { rescan }: Pick<WantedDevice<unknown>, 'rescan'>,
  ended: AbortSignal,
  events: SeenEvents,
): { readonly outcome: string | undefined } {
  const state: { outcome: string | undefined } = { outcome: undefined }
  if (rescan === undefined || LATE_MS >= timeoutMs) return state
  const rescanLate = async () => {
    // A device that was plugged in after one rescan waits for the next.
    for (let pauseMs = LATE_MS; ; pauseMs *= 2) {
      await after(clock, pauseMs, ended)
      state.outcome = 'has not ended'
      state.outcome = await rescan().then(() => 'done', messageOf)
      events.wake()
    }
  }
  void rescanLate()
  return state
}

/** Resolves after so long, or never when `ended` fires first. */
async function after(clock: Clock, ms: number, ended: AbortSignal): Promise<void> {
  await clock.sleep(ms, ended).catch(() => Promise.withResolvers<never>().promise)
}

/** A sleep that ends with the wait it is part of; without a length it is never over. */
function pauseOf(clock: Clock, ms: number | undefined): { readonly over: Promise<void>; end(): void } {
  if (ms === undefined) return { over: new Promise(() => {}), end: () => {} }
  const ended = new AbortController()
  const over = clock.sleep(ms, ended.signal)
  // Rejects when it is ended early, which nobody waits for any more.
  over.catch(() => {})
  return { over, end: () => ended.abort() }
}
