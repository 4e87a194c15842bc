import { AgentError, messageOf } from '../base/errors.ts'
import { raceSignal } from '../base/signals.ts'
import type { Clock, Files, Uevents } from '../os/os.ts'
import type { DeviceDrivers } from './device-drivers.ts'
import { parseUevent, type Uevent } from './uevent.ts'

/** What waiting for devices needs. */
export interface HotplugDependencies {
  readonly files: Files
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
  /** Looks into sysfs. */
  readonly probe: () => Promise<Probe<T>>
  /** Whether another look is worth while after this event. */
  readonly concerns: (event: Uevent) => boolean
  /** Looks again after so long even when no event came. */
  readonly lookAgainMs?: number
  /** What sysfs shows of the kind, for the error of a time-out. */
  readonly candidates?: () => Promise<readonly string[]>
  /** Has the kernel look for the device by itself: done once, when it has been silent about it for a while. */
  readonly rescan?: () => Promise<void>
}

/** Most events, and most candidates, that the error of a time-out lists. */
const LISTED_EVENTS = 8
const LISTED_CANDIDATES = 32

/** How long the kernel may be silent before it is asked to look. */
const SILENCE_MS = 1000

/**
 * Waits until `probe` finds its device. It looks at once, then again whenever an event that `concerns` it has come, or
 * events were lost: sysfs is what counts, an event only says when to look. Waits are independent of each other. Throws
 * INTERNAL after the time-out, with what was waited for and what was seen, or what `signal` is aborted with.
 */
export async function waitForDevice<T>(
  dependencies: HotplugDependencies,
  wanted: WantedDevice<T>,
  signal: AbortSignal,
): Promise<T> {
  const { clock, timeoutMs, uevents } = dependencies
  // Listening begins before the first look: what appears in between is not missed.
  const events = listen(uevents, wanted.concerns)
  const ended = new AbortController()
  let rescanned: string | undefined
  const elapsed = after(clock, timeoutMs, ended.signal).then(() => 'elapsed' as const)
  if (wanted.rescan !== undefined && SILENCE_MS < timeoutMs) {
    const { rescan } = wanted
    void after(clock, SILENCE_MS, ended.signal).then(async () => {
      if (events.hasConcerned) return
      rescanned = await rescan().then(() => 'asked to rescan', messageOf)
      events.wake()
    })
  }
  try {
    for (;;) {
      const event = events.next()
      const result = await wanted.probe()
      if ('found' in result) return result.found
      const pause = pauseOf(clock, wanted.lookAgainMs)
      const woken = raceSignal(Promise.race([event, elapsed, pause.over]), signal).finally(pause.end)
      if ((await woken) === 'elapsed') {
        throw await timedOut(dependencies, wanted, { missing: result.missing, events, rescanned })
      }
    }
  } finally {
    ended.abort()
    events.close()
  }
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

async function timedOut<T>(
  { timeoutMs, drivers }: HotplugDependencies,
  { description, candidates }: WantedDevice<T>,
  seen: { readonly missing: string; readonly events: Events; readonly rescanned: string | undefined },
): Promise<AgentError> {
  const { missing, events, rescanned } = seen
  const failures = drivers?.failures ?? []
  const shown = await (candidates?.() ?? Promise.resolve([])).catch((error) => [messageOf(error)])
  const came =
    events.count === 0
      ? 'no uevent came'
      : `${events.count} uevents came, the last: ${events.last.join(', ')}`
  const parts = [
    `Timeout after ${timeoutMs / 1000}s waiting for uevent of ${description}: no ${missing}; meanwhile ${came}`,
    ...(rescanned === undefined ? [] : [`the kernel was silent: ${rescanned}`]),
    ...(candidates === undefined ? [] : [`sysfs shows ${listed(shown)}`]),
    ...(failures.length === 0 ? [] : [`drivers not loaded: ${failures.join(', ')}`]),
  ]
  return new AgentError('INTERNAL', parts.join('; '))
}

function listed(names: readonly string[]): string {
  if (names.length === 0) return 'nothing of the kind'
  const more = names.length > LISTED_CANDIDATES ? [`${names.length - LISTED_CANDIDATES} more`] : []
  return [...names.slice(0, LISTED_CANDIDATES), ...more].join(', ')
}

interface Events {
  /** Resolves at the next event from now that concerns us, or when events may have been lost. */
  next(): Promise<void>
  /** Whether an event has concerned us, or may have. */
  readonly hasConcerned: boolean
  /** How many events came, of whatever device. */
  readonly count: number
  /** The last of them, as text. */
  readonly last: readonly string[]
  /** Ends the wait for the next event: it is worth looking again. */
  wake(): void
  close(): void
}

function listen(uevents: Uevents, concerns: (event: Uevent) => boolean): Events {
  const last: string[] = []
  let count = 0
  let hasConcerned = false
  let wake = Promise.withResolvers<void>()
  const record = (text: string, isConcern: boolean) => {
    count += 1
    if (last.push(text) > LISTED_EVENTS) last.shift()
    if (!isConcern) return
    hasConcerned = true
    wake.resolve()
  }
  const socket = uevents.listen({
    event(datagram) {
      const event = parseUevent(datagram)
      if (event !== undefined) record(`${event.action}@${event.devicePath}`, concerns(event))
    },
    error: (error) => record(error.message, true),
  })
  return {
    next() {
      wake = Promise.withResolvers()
      return wake.promise
    },
    get hasConcerned() {
      return hasConcerned
    },
    get count() {
      return count
    },
    last,
    wake: () => wake.resolve(),
    close: () => socket.close(),
  }
}
