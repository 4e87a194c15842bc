import { chmodSync, statSync } from 'node:fs'
// biome-ignore lint/style/noRestrictedImports: only a write that copies the log waits for the disk
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { crc32 } from 'node:zlib'
import { AgentError } from '../../../base/errors.ts'
import { makeFile } from './folder-lock.ts'
import { type Change, TABLES, type Table } from './registry.ts'
import { damaged, isFull, sqliteFailure, startFailure } from './sqlite-errors.ts'

/**
 * Step N leads from schema version N to N + 1 (`PRAGMA user_version`). A step that has been released never changes.
 * `sum` is the CRC of table, key and payload: SQLite's own checks do not look into rows.
 */
export const MIGRATIONS: readonly string[] = [
  ['instances', 'steps', 'calls', 'streams', 'settings']
    .map(
      (table) =>
        `CREATE TABLE ${table} (key TEXT PRIMARY KEY, sum INTEGER, payload BLOB) STRICT, WITHOUT ROWID;`,
    )
    .join('\n'),
]

/** Of a new file; another keeps its own. A row of some 2000 bytes is whole in such a page, and a write has fewer pages. */
const PAGE_BYTES = 8192

/** The write that makes the log as long copies it into the file, and waits for the disk: one change in some 800. */
const LOG_PAGES = 2000

export interface Database {
  rows(table: Table): ReadonlyMap<string, Uint8Array>
  /** Carries out all changes or none. They are on the disk once the log has been synced, or the database closed. */
  write(changes: readonly Change[]): void
  /** Gives the log's room back to the disk, if what is in it fits into the file. */
  readonly shrink: () => void
  close(): void
}

/** Opens or makes the registry's file; throws FAILED_PRECONDITION, with the remedy, when it is damaged or newer. Blocks. */
export function openDatabase(path: string, migrations: readonly string[] = MIGRATIONS): Database {
  if (isEmpty(path) && !isEmpty(`${path}-wal`)) throw damaged(path, 'empty, but its log is not')
  makeFile(path)
  chmodSync(path, 0o600)
  const database = new DatabaseSync(path, { open: false })
  try {
    database.open()
    database.exec(`PRAGMA page_size = ${PAGE_BYTES}`)
    migrate(database, checkFile(database, path, migrations.length), migrations)
    const opened = new OpenDatabase(database, path)
    for (const table of TABLES) opened.rows(table)
    useLog(database, path)
    tryToWrite(database, migrations.length)
    // NORMAL is FULL without a sync of the log after each commit (https://sqlite.org/pragma.html#pragma_synchronous). The first write
    // has synced the folder of a new log, too.
    database.exec('PRAGMA synchronous = NORMAL')
    return opened
  } catch (error) {
    if (database.isOpen) database.close()
    throw startFailure(path, error)
  }
}

/** Also true of a missing file. SQLite takes a file of one byte for an empty one. */
export function isEmpty(path: string): boolean {
  return (statSync(path, { throwIfNoEntry: false })?.size ?? 0) <= 1
}

/** Returns the schema version. */
function checkFile(database: DatabaseSync, path: string, newest: number): number {
  // In this mode SQLite shares no memory with other processes, and keeps them out.
  database.exec('PRAGMA locking_mode = EXCLUSIVE')
  const version = numberOf(database, 'PRAGMA user_version')
  if (version > newest) {
    throw new AgentError(
      'FAILED_PRECONDITION',
      `${path}: of schema version ${version}, newer than ${newest}, want a newer program, or this one started with --rebuild`,
    )
  }
  const check = Object.values(database.prepare('PRAGMA quick_check(1)').get() ?? {})[0]
  if (check !== 'ok') throw damaged(path, String(check).replaceAll('\n', ' '))
  if (version < 0 || (version === 0 && numberOf(database, 'SELECT count(*) FROM sqlite_schema') > 0)) {
    throw damaged(path, 'the database of another program')
  }
  return version
}

function migrate(database: DatabaseSync, version: number, migrations: readonly string[]): void {
  for (const [index, step] of migrations.slice(version).entries()) {
    inTransaction(database, () => database.exec(`${step}; PRAGMA user_version = ${version + index + 1}`))
  }
}

function useLog(database: DatabaseSync, path: string): void {
  const mode = database.prepare('PRAGMA journal_mode = WAL').get()?.journal_mode
  if (mode !== 'wal') throw new AgentError('INTERNAL', `${path}: journal mode ${mode}, want wal`)
  database.exec(`PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = ${LOG_PAGES}`)
  database.exec(`PRAGMA journal_size_limit = ${LOG_PAGES * PAGE_BYTES}`)
}

/** Throws when the file cannot be written: a header may say so. A full disk stops no start. */
function tryToWrite(database: DatabaseSync, version: number): void {
  try {
    database.exec(`PRAGMA user_version = ${version}`)
  } catch (error) {
    if (!isFull(error)) throw error
  }
}

function numberOf(database: DatabaseSync, query: string): number {
  return Number(Object.values(database.prepare(query).get() ?? {})[0])
}

function inTransaction(database: DatabaseSync, work: () => void): void {
  database.exec('BEGIN IMMEDIATE')
  try {
    work()
    database.exec('COMMIT')
  } finally {
    // Most failures have ended the transaction already.
    if (database.isTransaction) database.exec('ROLLBACK')
  }
}

interface Statements {
  readonly all: StatementSync
  readonly store: StatementSync
  readonly remove: StatementSync
}

class OpenDatabase implements Database {
  readonly #database: DatabaseSync
  readonly #path: string
  readonly #statements: ReadonlyMap<Table, Statements>

  constructor(database: DatabaseSync, path: string) {
    this.#database = database
    this.#path = path
    this.#statements = new Map(TABLES.map((table) => [table, statementsOf(database, table)]))
  }

  rows(table: Table): ReadonlyMap<string, Uint8Array> {
    const rows = new Map<string, Uint8Array>()
    for (const { key, sum, payload } of this.#of(table).all.iterate()) {
      if (
        typeof key !== 'string' ||
        !(payload instanceof Uint8Array) ||
        sum !== BigInt(sumOf(table, key, payload))
      ) {
        throw damaged(this.#path, `a row of ${table} is not as it was written`)
      }
      rows.set(key, payload)
    }
    return rows
  }

  write(changes: readonly Change[]): void {
    try {
      inTransaction(this.#database, () => {
        for (const { table, key, payload } of changes) {
          const { store, remove } = this.#of(table)
          if (payload === undefined) remove.run(key)
          else store.run(key, sumOf(table, key, payload), payload)
        }
      })
    } catch (error) {
      throw sqliteFailure(this.#path, error)
    }
  }

  readonly shrink = (): void => {
    try {
      this.#database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    } catch (error) {
      if (!isFull(error)) throw sqliteFailure(this.#path, error)
    }
  }

  close(): void {
    this.#database.close()
  }

  #of(table: Table): Statements {
    const statements = this.#statements.get(table)
    if (statements === undefined) throw new AgentError('INTERNAL', `registry: no table ${table}`)
    return statements
  }
}

function statementsOf(database: DatabaseSync, table: Table): Statements {
  const all = database.prepare(`SELECT key, sum, payload FROM ${table}`)
  // A damaged sum may be greater than the largest safe number.
  all.setReadBigInts(true)
  return {
    all,
    store: database.prepare(`INSERT OR REPLACE INTO ${table} (key, sum, payload) VALUES (?, ?, ?)`),
    remove: database.prepare(`DELETE FROM ${table} WHERE key = ?`),
  }
}

function sumOf(table: Table, key: string, payload: Uint8Array): number {
  return crc32(payload, crc32(`${table}\0${key}`))
}
