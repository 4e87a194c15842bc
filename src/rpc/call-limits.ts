import { cancelled, deadlineExceeded, LONGEST_TIMER_MS } from '../base/abort.ts'
import type { IncomingCall } from './method.ts'

interface Interruptible {
  /** Fires the signal with another reason. */
  interrupt: ((reason: Error) => void) | undefined
}

/** A signal that fires at the hang-up and at the deadline. */
export function limitsOf(
  incoming: Pick<IncomingCall, 'hangup' | 'timeoutMs'>,
  call?: Interruptible,
): {
  readonly signal: AbortSignal
  readonly release: () => void
} {
  const controller = new AbortController()
  if (call !== undefined) call.interrupt = (reason) => controller.abort(reason)
  const onHangup = () => controller.abort(cancelled())
  if (incoming.hangup.aborted) onHangup()
  incoming.hangup.addEventListener('abort', onHangup, { once: true })
  const expire = () => controller.abort(deadlineExceeded())
  // A timer would fire too late: the call would begin.
  if (incoming.timeoutMs === 0) expire()
  const timer = timerOf(incoming.timeoutMs, expire)
  return {
    signal: controller.signal,
    release: () => {
      clearTimeout(timer)
      incoming.hangup.removeEventListener('abort', onHangup)
    },
  }
}

function timerOf(timeoutMs: number | undefined, expired: () => void): NodeJS.Timeout | undefined {
  return timeoutMs === undefined ? undefined : setTimeout(expired, Math.min(timeoutMs, LONGEST_TIMER_MS))
}
