import type { SandboxContext } from './context.ts'

/** A container that ran out of memory. */
export interface OomEventTaken {
  readonly containerId: string
  /** Keeps the event for the next caller: this one's answer was not delivered. */
  requeue(): void
}

/** GetOOMEvent (behaviour spec, section C.33): waits for the next container that ran out of memory. */
export async function getOomEvent(
  { oom }: SandboxContext,
  _request: object,
  signal: AbortSignal,
): Promise<OomEventTaken> {
  const containerId = await oom.queue.take(signal)
  return { containerId, requeue: () => oom.queue.requeue(containerId) }
}
