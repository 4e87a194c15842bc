/** What the daemon remembers. Each table maps keys to payloads, messages of proto/microvm/instance/v1/records.proto. */
export const TABLES = ['instances', 'steps', 'calls', 'streams', 'settings'] as const

export type Table = (typeof TABLES)[number]

/** Stores a payload, or removes the key without one. */
export interface Change {
  readonly table: Table
  readonly key: string
  readonly payload: Uint8Array | undefined
}

export interface Registry {
  /** All rows of a table, as they are on disk. For the start: later, their owners know better. */
  load(table: Table): Promise<ReadonlyMap<string, Uint8Array>>
  /**
   * Writes all of the changes or none, and resolves once they would survive a crash of the machine. Calls of one turn are
   * one transaction; calls are carried out in their order. Rejects with RESOURCE_EXHAUSTED when the disk is full, and with
   * INTERNAL when it fails otherwise. With `frees`, for what makes room, it has a reserve on a full disk.
   */
  commit(changes: readonly Change[], options?: { readonly frees?: boolean }): Promise<void>
  /** Waits for all commits. */
  close(): Promise<void>
}
