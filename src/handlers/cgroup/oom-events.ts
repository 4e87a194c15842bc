import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import type { GetOOMEventRequest, OOMEvent } from '../../gen/agent.ts'
import type { Clock } from '../../os/clock.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { Call } from '../../state/request.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import type { StateStore } from '../../state/state-store.ts'
import type { Cgroup } from './cgroup.ts'
import { type Ids, type OomOwner, OomQueue } from './oom-queue.ts'
import { type OomWatch, RETRIES_MS } from './oom-watch.ts'

export interface OomRecord {
  readonly id: string
  readonly fields: OomOwner
  /** The number of reported kills. */
  readonly oomKills: bigint
  saveOomKills(kills: bigint): void
}

/** Watches the memory of containers, and queues an event for each that runs out of it. */
export class OomEvents {
  readonly queue: OomQueue
  readonly #log: Logger
  readonly #events: Pick<EventLog, 'add'>
  /** By container key. */
  readonly #watches = new Map<string, OomWatch>()

  constructor(
    log: Logger,
    parts: {
      readonly state: StateStore
      readonly events: Pick<EventLog, 'add'>
      readonly requests: RequestJournal
      readonly names: Ids
    },
  ) {
    this.#log = log
    this.#events = parts.events
    this.queue = new OomQueue(log, parts)
  }

  /** Watches until {@link end}. `before`: the kills reported so far; undefined: all of now. Logs a failure. */
  async watch(
    container: {
      readonly cgroup: Cgroup
      readonly init: { readonly ended: Promise<unknown> }
      readonly record: OomRecord
    },
    before?: bigint,
  ): Promise<void> {
    const { record } = container
    const { key, createdNs } = record.fields
    try {
      const reported = before === undefined ? undefined : this.queue.killsOf({ key, createdNs }, before)
      // Save it: once the event has gone to a caller, only the record says that the kill was reported.
      if (reported !== undefined && reported !== before) this.#save(record, reported)
      const watch = await container.cgroup.watchOom(reported, (kills) => {
        const containerId = record.id
        this.#log.warn('container out of memory', { containerId })
        this.queue.add({ containerId, kills, key, createdNs })
        this.#events.add({ outOfMemory: { containerId } })
        this.#save(record, kills)
      })
      this.#watches.set(key, watch)
      const look = () => watch.look()
      container.init.ended.then(look, look)
    } catch (error) {
      this.#log.warn('memory of a container not watched', { containerId: record.id, error: messageOf(error) })
    }
  }

  /** Kills without a watching agent have brought no notification, and may not be counted yet. Never rejects. */
  async lookForUnnotified(clock: Clock): Promise<void> {
    const lookAtAll = () => Promise.all([...this.#watches.values()].map((watch) => watch.look()))
    await lookAtAll()
    for (const pause of RETRIES_MS) {
      await clock.sleep(pause)
      await lookAtAll()
    }
  }

  #save(record: OomRecord, kills: bigint): void {
    try {
      record.saveOomKills(kills)
    } catch (error) {
      this.#log.warn('out-of-memory kills not saved', { containerId: record.id, error: messageOf(error) })
    }
  }

  /** Reports kills that were not reported yet. Never rejects. */
  async look(key: string): Promise<void> {
    await this.#watches.get(key)?.look()
  }

  /** Ends the watch, if any, after a last look. */
  async end(key: string): Promise<void> {
    const watch = this.#watches.get(key)
    this.#watches.delete(key)
    await watch?.end()
  }
}

/** GetOOMEvent: waits for the next container that ran out of memory. */
export async function getOomEvent(
  { oom }: { readonly oom: OomEvents },
  _request: GetOOMEventRequest,
  call: Call,
): Promise<OOMEvent> {
  return { containerId: await inStep('event', '', () => oom.queue.take(call)) }
}
