import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Cgroup } from './cgroup.ts'
import { OomQueue } from './oom-queue.ts'
import type { OomWatch } from './oom-watch.ts'

/** Watches the memory of containers, and queues an event for each that runs out of it. */
export class OomEvents {
  readonly queue: OomQueue
  readonly #log: Logger
  readonly #watches = new Map<string, OomWatch>()

  constructor(log: Logger) {
    this.#log = log
    this.queue = new OomQueue(log)
  }

  /** Watches a container until {@link end}. A container that cannot be watched runs all the same, with a line in the log. */
  async watch(
    containerId: string,
    container: { readonly cgroup: Cgroup; readonly init: { readonly ended: Promise<unknown> } },
  ): Promise<void> {
    try {
      const watch = await container.cgroup.watchOom(() => {
        this.#log.warn('container out of memory', { containerId })
        this.queue.add(containerId)
      })
      this.#watches.set(containerId, watch)
      const look = () => watch.look()
      container.init.ended.then(look, look)
    } catch (error) {
      this.#log.warn('memory of a container not watched', { containerId, error: messageOf(error) })
    }
  }

  /** Ends the watch of a container, if there is one, after a last look. */
  async end(containerId: string): Promise<void> {
    const watch = this.#watches.get(containerId)
    this.#watches.delete(containerId)
    await watch?.end()
  }
}

/** A container that ran out of memory. */
export interface OomEventTaken {
  readonly containerId: string
  /** Puts the event back at the front of the queue, when the answer was not delivered. */
  requeue(): void
}

/** GetOOMEvent (behaviour spec, section C.33): waits for the next container that ran out of memory. */
export async function getOomEvent(
  { oom }: { readonly oom: OomEvents },
  signal: AbortSignal,
): Promise<OomEventTaken> {
  const containerId = await oom.queue.take(signal)
  return { containerId, requeue: () => oom.queue.requeue(containerId) }
}
