import { type FileHandle, open } from 'node:fs/promises'
import { AgentError } from '../../../base/errors.ts'
import { failed } from '../../../os/errors.ts'
import { checkChanges } from './check-changes.ts'
import { type Database, openDatabase } from './database.ts'
import { lockFolder } from './folder-lock.ts'
import { findLoss, type RebuildReport, rebuild, registryPath } from './rebuild.ts'
import type { Change, Registry, Table } from './registry.ts'
import { Reserve } from './reserve.ts'

/** Changes that wait for a slow disk. */
export const MAX_WAITING_BYTES = 64 * 1024 * 1024
/** What a change costs besides its key and payload. */
const CHANGE_BYTES = 200

export interface SqliteRegistry extends Registry {
  readonly statistics: { readonly commits: number; readonly transactions: number }
}

/**
 * Opens the registry of a daemon's state folder, or makes an empty one. Throws FAILED_PRECONDITION, in one sentence, when
 * another daemon has the folder, and when the registry is damaged or newer. Tests give another `sync`.
 */
export async function openRegistry(
  stateFolder: string,
  sync = (log: FileHandle) => log.datasync(),
): Promise<SqliteRegistry> {
  const { release } = lockFolder(stateFolder)
  try {
    findLoss(stateFolder)
    const path = registryPath(stateFolder)
    const database = openDatabase(path)
    const reserve = await Reserve.open(stateFolder)
    const log = await open(`${path}-wal`)
    const syncLog = () => sync(log).catch(failed('fdatasync', `${path}-wal`))
    return new GroupedRegistry({ database, log, syncLog, reserve, release })
  } catch (error) {
    release()
    throw error
  }
}

/** Makes the registry anew from the specifications of the instances; the old one stays under another name. */
export async function rebuildRegistry(stateFolder: string): Promise<RebuildReport> {
  const { release } = lockFolder(stateFolder)
  try {
    return await rebuild(stateFolder)
  } finally {
    release()
  }
}

interface Parts {
  readonly database: Database
  readonly log: FileHandle
  /** In a thread of libuv: a slow disk stops nothing else. */
  readonly syncLog: () => Promise<void>
  readonly reserve: Reserve
  readonly release: () => void
}

interface Commit {
  readonly changes: readonly Change[]
  readonly frees: boolean
  readonly bytes: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

class GroupedRegistry implements SqliteRegistry {
  readonly statistics = { commits: 0, transactions: 0 }
  readonly #parts: Parts
  #waiting: Commit[] = []
  #waitingBytes = 0
  #writing: Promise<void> | undefined
  #closing: Promise<void> | undefined
  #failure: unknown

  constructor(parts: Parts) {
    this.#parts = parts
  }

  async load(table: Table): Promise<ReadonlyMap<string, Uint8Array>> {
    this.#refuseIfClosed()
    return this.#parts.database.rows(table)
  }

  async commit(changes: readonly Change[], { frees = false } = {}): Promise<void> {
    this.#refuseIfClosed()
    checkChanges(changes)
    const bytes = changes.reduce(
      (sum, { key, payload }) => sum + CHANGE_BYTES + key.length + (payload?.length ?? 0),
      0,
    )
    if (this.#waitingBytes + bytes > MAX_WAITING_BYTES) {
      throw new AgentError(
        'RESOURCE_EXHAUSTED',
        `registry: more than ${MAX_WAITING_BYTES} bytes wait for the disk`,
      )
    }
    this.#waitingBytes += bytes
    // The caller may change its buffers before they are written.
    const copies = changes.map((change) => ({
      ...change,
      payload: change.payload && new Uint8Array(change.payload),
    }))
    await new Promise<void>((resolve, reject) => {
      this.#waiting.push({ changes: copies, frees, bytes, resolve, reject })
      this.#writing ??= this.#write()
    })
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    await this.#writing
    const { database, log, release } = this.#parts
    database.close()
    await log.close()
    release()
  }

  /** Writes until nothing waits. Never throws. */
  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      // The rest of this turn of the event loop may add to the transaction.
      await new Promise(setImmediate)
      const group = this.#waiting.splice(0)
      await this.#writeGroup(group)
      this.#waitingBytes -= group.reduce((sum, { bytes }) => sum + bytes, 0)
    }
    this.#writing = undefined
  }

  async #writeGroup(group: readonly Commit[], usesReserve = false): Promise<void> {
    const changes = group.flatMap((each) => each.changes)
    try {
      const { database, reserve } = this.#parts
      if (usesReserve) await reserve.spend(() => this.#store(changes), database.shrink)
      else await this.#store(changes)
      this.statistics.commits += group.length
      this.statistics.transactions += 1
      for (const { resolve } of group) resolve()
    } catch (error) {
      const isFull = error instanceof AgentError && error.code === 'RESOURCE_EXHAUSTED'
      const saved = isFull && !usesReserve ? group.filter(({ frees }) => frees) : []
      for (const commit of group) if (!saved.includes(commit)) commit.reject(error)
      if (saved.length > 0) await this.#writeGroup(saved, true)
    }
  }

  async #store(changes: readonly Change[]): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    this.#parts.database.write(changes)
    try {
      await this.#parts.syncLog()
    } catch (error) {
      // The kernel forgets what it could not write (fsync(2)), and no later commit is found behind that.
      this.#failure = error
      throw error
    }
  }

  #refuseIfClosed(): void {
    if (this.#closing !== undefined) throw new AgentError('INTERNAL', 'registry: closed')
  }
}
