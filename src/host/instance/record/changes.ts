import { Changes } from '../../../base/changes.ts'
import type {
  InstanceChange,
  WatchInstancesRequest,
  WatchInstancesResponse,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { Change } from '../registry/registry.ts'

/** The row of table `settings` with the number of the latest change. */
const ROW = 'sequence'
/** Of one answer to a watcher. */
const CHANGES_PER_ANSWER = 256

/**
 * The numbered changes of all instances. The last ones are kept in memory; their numbers go on after a restart of the
 * daemon, so that a watcher learns how many it has missed.
 */
export class InstanceChanges {
  readonly #limit: number
  readonly #kept: InstanceChange[] = []
  readonly #published = new Changes()
  readonly #counts = new Map<string, number>()
  #last: bigint
  /** All changes after this one are kept. */
  #forgotten: bigint

  constructor(settings: ReadonlyMap<string, Uint8Array>, limit: number) {
    const row = settings.get(ROW)
    this.#last = row === undefined ? 0n : Buffer.from(row).readBigUInt64LE()
    this.#forgotten = this.#last
    this.#limit = limit
  }

  /** How many changes of each kind there were since the start. */
  get counts(): ReadonlyMap<string, number> {
    return this.#counts
  }

  /** Takes the number of a change. Its row is to be committed with the change, before that is published. */
  next(): { readonly sequence: bigint; readonly row: Change } {
    this.#last += 1n
    const payload = Buffer.alloc(8)
    payload.writeBigUInt64LE(this.#last)
    return { sequence: this.#last, row: { table: 'settings', key: ROW, payload } }
  }

  publish(change: InstanceChange): void {
    this.#kept.push(change)
    this.#counts.set(change.kind, (this.#counts.get(change.kind) ?? 0) + 1)
    if (this.#kept.length > this.#limit) this.#forgotten = this.#kept.shift()?.sequence ?? this.#forgotten
    this.#published.announce()
  }

  async *watch(
    { after, once }: WatchInstancesRequest,
    isVisible: (change: InstanceChange) => boolean,
    signal: AbortSignal,
  ): AsyncGenerator<WatchInstancesResponse> {
    for (let position = after; ; ) {
      const lost = this.#forgotten > position ? this.#forgotten - position : 0n
      const batch = this.#after(position).slice(0, CHANGES_PER_ANSWER)
      position = batch.at(-1)?.sequence ?? position + lost
      const changes = batch.filter(isVisible)
      if (changes.length > 0 || lost > 0n) yield { changes, lost }
      // More may have come while the watcher took its answer.
      if (this.#after(position).length > 0) continue
      if (once) return
      await this.#published.next(signal)
    }
  }

  #after(position: bigint): readonly InstanceChange[] {
    return this.#kept.filter(({ sequence }) => sequence > position)
  }
}
