import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import type { InstanceRecord, StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { Change, Registry } from '../registry/registry.ts'
import type { InstanceChanges } from './changes.ts'
import { recordRow, shownState, stepKey, stepRow, withoutStep } from './instance-record.ts'
import type { Timeline } from './timeline.ts'

/** What a change is called, for those who watch. */
export interface Announcement {
  readonly kind:
    | 'created'
    | 'state'
    | 'backend'
    | 'device'
    | 'snapshot'
    | 'adopted'
    | 'holder died'
    | 'removed'
  /** One sentence. */
  readonly text: string
}

interface RecordedChange extends Announcement {
  readonly set?: Partial<InstanceRecord>
  readonly add?: readonly StepRecord[]
  readonly drop?: readonly StepRecord[]
  /** Rows of other tables. */
  readonly rows?: readonly Change[]
  /** As of {@link Registry.commit}. */
  readonly frees?: boolean
}

interface RecordParts {
  readonly key: string
  readonly registry: Registry
  readonly changes: InstanceChanges
  readonly log: Logger
}

/** What the registry knows of one instance: its record and its steps. */
export class RecordedInstance {
  readonly key: string
  /** Of the suspend, resume or clone that is under way. */
  timeline: Timeline | undefined
  readonly #registry: Registry
  readonly #changes: InstanceChanges
  readonly #log: Logger
  readonly #steps = new Map<string, StepRecord>()
  #record: InstanceRecord

  constructor(parts: RecordParts, record: InstanceRecord, steps: readonly StepRecord[]) {
    this.key = parts.key
    this.#registry = parts.registry
    this.#changes = parts.changes
    this.#log = parts.log
    this.#record = record
    for (const step of steps) this.#steps.set(stepKey(step), step)
  }

  get record(): Readonly<InstanceRecord> {
    return this.#record
  }

  get steps(): readonly StepRecord[] {
    return [...this.#steps.values()]
  }

  /** Rows of the table of settings, as they are on disk. */
  load(table: 'settings'): Promise<ReadonlyMap<string, Uint8Array>> {
    return this.#registry.load(table)
  }

  step(step: string, words: readonly string[]): StepRecord {
    return { instance: this.key, step, words: [...words] }
  }

  /**
   * Changes the record at once, and resolves when that is written; then those who watch are told. When it cannot be
   * written, the record is as before, and this rejects as {@link Registry.commit} does.
   */
  async commit(change: RecordedChange): Promise<void> {
    const { set = {}, add = [], drop = [], rows = [], frees = false, kind, text } = change
    const { sequence, row } = this.#changes.next()
    const before = this.#record
    this.#record = { ...before, ...set, sequence }
    const known = add.flatMap((step) => this.#steps.get(stepKey(step)) ?? [])
    for (const step of add) this.#steps.set(stepKey(step), step)
    try {
      const steps = [...add.map(stepRow), ...drop.map(withoutStep)]
      await this.#registry.commit([recordRow(this.key, this.#record), ...steps, ...rows, row], { frees })
    } catch (error) {
      for (const step of add) this.#steps.delete(stepKey(step))
      for (const step of known) this.#steps.set(stepKey(step), step)
      this.#record = { ...this.#record, ...pick(before, Object.keys(set)) }
      throw error
    }
    for (const step of drop) this.#steps.delete(stepKey(step))
    this.#announce(sequence, kind, text)
  }

  /**
   * As {@link commit}, for what has happened already, and for what must go on when the registry cannot be written, such as
   * the end of a machine while the disk is full. Then the record is ahead of the registry until the next commit; what no row can have
   * is left out.
   */
  async note(change: RecordedChange): Promise<void> {
    try {
      await this.commit(change)
    } catch (error) {
      const { text, kind } = change
      this.#log.warn('instance not recorded', { text, error: messageOf(error) })
      const ahead = { ...this.#record, ...change.set }
      if (this.#canBeWritten(ahead)) this.#record = ahead
      this.#announce(this.#record.sequence, kind, text)
    }
  }

  /** Removes all rows of the instance; `rows` are those of other tables. */
  async forget(rows: readonly Change[]): Promise<void> {
    const { sequence, row } = this.#changes.next()
    const record: Change = { table: 'instances', key: this.key, payload: undefined }
    const gone = [record, ...this.steps.map(withoutStep), ...rows, row]
    await this.#registry.commit(gone, { frees: true })
    this.#steps.clear()
    this.#announce(sequence, 'removed', 'the instance was removed')
  }

  #canBeWritten(record: InstanceRecord): boolean {
    try {
      recordRow(this.key, record)
      return true
    } catch {
      return false
    }
  }

  #announce(sequence: bigint, kind: string, text: string): void {
    const { properties } = this.#record
    const tenant = properties?.tenant ?? ''
    this.#changes.publish({
      sequence,
      timeMs: BigInt(Date.now()),
      key: this.key,
      tenant,
      kind,
      text,
      state: shownState(this.#record),
    })
  }
}

function pick(record: InstanceRecord, keys: readonly string[]): Partial<InstanceRecord> {
  return Object.fromEntries(Object.entries(record).filter(([key]) => keys.includes(key)))
}
