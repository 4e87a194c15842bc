import type { MachineInstance } from '../instance.ts'
import type { Moves } from '../moves.ts'
import { checkSavedQuota, keptMachines, type Quotas, type SavedUse, savedUse } from './quota.ts'

/** The room that the quotas of tenants leave for saved machines and memories of snapshots. */
export class SavedRoom {
  readonly #moves: Pick<Moves, 'list'> | undefined
  readonly #quotas: Quotas
  /** Machines that are being saved, each with room for its memory. */
  readonly #saving = new Set<SavedUse>()

  constructor(moves: Pick<Moves, 'list'> | undefined, quotas: Quotas = new Map()) {
    this.#moves = moves
    this.#quotas = quotas
  }

  /**
   * Saves the machine of an instance by `save`, during which it counts as a saved one. Throws RESOURCE_EXHAUSTED when its tenant would
   * have more than its quota. To be called in a change.
   */
  async within<Result>(
    instance: Pick<MachineInstance, 'all' | 'record'>,
    save: () => Promise<Result>,
  ): Promise<Result> {
    const { record } = instance
    const tenant = record.properties?.tenant ?? ''
    if (!this.#quotas.has(tenant)) return await save()
    // One that is saved while the list is read may not be in it.
    const before = [...this.#saving]
    const saved = (await this.#moves?.list(tenant)) ?? []
    const saving = new Set([...before, ...this.#saving])
    checkSavedQuota(this.#quotas, record, [...saved, ...keptMachines(instance.all()), ...saving])
    const use = savedUse(tenant, record.specification)
    this.#saving.add(use)
    try {
      return await save()
    } finally {
      this.#saving.delete(use)
    }
  }
}
