import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ContainerParts } from '../container/container.ts'
import { OomQueue } from './oom-queue.ts'
import type { OomWatch } from './oom-watch.ts'

/** The containers whose memory is watched, and what was seen. */
export class OomEvents {
  readonly queue: OomQueue
  readonly #log: Logger
  readonly #watches = new Map<string, OomWatch>()

  constructor(log: Logger) {
    this.#log = log
    this.queue = new OomQueue(log)
  }

  /** Watches a container until {@link end}. One that cannot be watched is logged: it can run all the same. */
  async watch(containerId: string, { cgroup, init }: ContainerParts): Promise<void> {
    try {
      const watch = await cgroup.watchOom(() => {
        this.#log.warn('container out of memory', { containerId })
        this.queue.add(containerId)
      })
      this.#watches.set(containerId, watch)
      const look = () => watch.look()
      init.ended.then(look, look)
    } catch (error) {
      this.#log.warn('memory of a container not watched', { containerId, error: messageOf(error) })
    }
  }

  /** Ends the watch of a container, if there is one, after what was left to see. */
  async end(containerId: string): Promise<void> {
    const watch = this.#watches.get(containerId)
    this.#watches.delete(containerId)
    await watch?.end()
  }
}
