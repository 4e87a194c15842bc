import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { type RunLeaseUpdate, RunLeaseUpdate_Status as Status } from '../../../gen/vm.ts'
import type { Clock } from '../../../os/clock.ts'

export interface RunLeaseParts {
  readonly clock: Pick<Clock, 'sleep'>
  /** Opens the stream of RunLease. */
  readonly open: (signal: AbortSignal) => AsyncIterable<Pick<RunLeaseUpdate, 'status'>>
  /** Called once, when the controller says that the machine must end. */
  readonly onTerminate: () => void
  readonly log: Pick<Logger, 'warn'>
}

/** Before the stream is opened again; it doubles with each that brings nothing. */
const PAUSE_MS = { first: 200, longest: 30_000 } as const

/**
 * Keeps a stream of RunLease open until `signal` fires or the controller says STATUS_TERMINATE; never rejects. Without the
 * controller, the machine runs on. Unknown values are ignored.
 */
export async function followRunLease(parts: RunLeaseParts, signal: AbortSignal): Promise<void> {
  const { clock, open, onTerminate, log } = parts
  let pauseMs: number = PAUSE_MS.first
  while (!signal.aborted) {
    let reason = 'the controller has ended it'
    try {
      for await (const { status } of open(signal)) {
        pauseMs = PAUSE_MS.first
        if (signal.aborted) return
        if (status !== Status.STATUS_TERMINATE) continue
        onTerminate()
        return
      }
    } catch (error) {
      reason = messageOf(error)
    }
    if (signal.aborted) return
    log.warn('RunLease has ended', { reason, retryMs: pauseMs })
    await clock.sleep(pauseMs, signal).catch(() => {})
    pauseMs = Math.min(pauseMs * 2, PAUSE_MS.longest)
  }
}
