import { AgentError } from '../base/errors.ts'
import { raceSignal } from '../base/signals.ts'
import type { Clock, Files, Uevents } from '../os/os.ts'
import { parseUevent, type Uevent } from './uevent.ts'

/** What waiting for devices needs. */
export interface HotplugDependencies {
  readonly files: Files
  readonly uevents: Uevents
  readonly clock: Clock
  /** How long a device is waited for (setting `agent.hotplug_timeout`). */
  readonly timeoutMs: number
}

/** What one look at sysfs gives: the device, or what is not there yet. */
export type Probe<T> = { readonly found: T } | { readonly missing: string }

/** Most events that the error of a time-out lists. */
const LISTED_EVENTS = 8

/**
 * Waits until `probe` finds its device. It looks at once, then again whenever an event that `concerns` it has come:
 * sysfs is what counts, an event only says when to look. Each wait listens by itself, so waits are independent.
 * Throws INTERNAL after the time-out, with what was waited for and what was seen, or what `signal` is aborted with.
 */
export async function waitForDevice<T>(
  dependencies: HotplugDependencies,
  wanted: {
    /** Completes the sentence "waiting for uevent of …". */
    readonly description: string
    readonly probe: () => Promise<Probe<T>>
    readonly concerns: (event: Uevent) => boolean
    /** Looks again after so long even when no event came. */
    readonly lookAgainMs?: number
  },
  signal: AbortSignal,
): Promise<T> {
  // Listening begins before the first look: what appears in between is not missed.
  const events = listen(dependencies.uevents, wanted.concerns)
  const timeout = new AbortController()
  const elapsed = dependencies.clock
    .sleep(dependencies.timeoutMs, timeout.signal)
    .then(() => 'elapsed' as const)
  // Aborted when the wait ends sooner.
  elapsed.catch(() => {})
  try {
    for (;;) {
      const event = events.next()
      const result = await wanted.probe()
      if ('found' in result) return result.found
      const pause = pauseOf(dependencies.clock, wanted.lookAgainMs)
      const woken = raceSignal(Promise.race([event, elapsed, pause.over]), signal).finally(pause.end)
      if ((await woken) === 'elapsed') {
        throw timedOut(dependencies.timeoutMs, wanted.description, result.missing, events)
      }
    }
  } finally {
    timeout.abort()
    events.close()
  }
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

function timedOut(timeoutMs: number, description: string, missing: string, events: Events): AgentError {
  const seen =
    events.count === 0
      ? 'no uevent came'
      : `${events.count} uevents came, the last: ${events.last.join(', ')}`
  return new AgentError(
    'INTERNAL',
    `Timeout after ${timeoutMs / 1000}s waiting for uevent of ${description}: no ${missing}; meanwhile ${seen}`,
  )
}

interface Events {
  /** Resolves at the next event from now that concerns us, or when events may have been lost. */
  next(): Promise<void>
  /** How many events came, of whatever device. */
  readonly count: number
  /** The last of them, as text. */
  readonly last: readonly string[]
  close(): void
}

function listen(uevents: Uevents, concerns: (event: Uevent) => boolean): Events {
  const last: string[] = []
  let count = 0
  let wake = Promise.withResolvers<void>()
  const note = (event: string) => {
    count += 1
    if (last.push(event) > LISTED_EVENTS) last.shift()
  }
  const socket = uevents.listen({
    event(datagram) {
      const event = parseUevent(datagram)
      if (event === undefined) return
      note(`${event.action}@${event.devicePath}`)
      if (concerns(event)) wake.resolve()
    },
    error(error) {
      note(error.message)
      wake.resolve()
    },
  })
  return {
    next() {
      wake = Promise.withResolvers()
      return wake.promise
    },
    get count() {
      return count
    },
    last,
    close: () => socket.close(),
  }
}
