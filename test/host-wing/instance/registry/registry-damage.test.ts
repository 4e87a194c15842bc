import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../../src/build/temporary-folder.ts'
import { type Database, MIGRATIONS, openDatabase } from '../../../../src/host/instance/registry/database.ts'
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { type Change, TABLES } from '../../../../src/host/instance/registry/registry.ts'
import { randomFrom } from '../../../support/kills/random.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const COMMITS = 12
const FLIPS = 200
const PAGE = 8192

const REFUSED = /^.*\.sqlite: .*--rebuild$/
const REFUSED_OR_COMPLETE = new RegExp(`${REFUSED.source}|^${COMMITS} commits$`)

// In memory: thousands of files are opened, and none of these tests is about the disk.
const folder = makeTemporaryFolder('/dev/shm')
/** A registry after its close, and one whose daemon was killed, with its log. */
const closed = join(folder, 'closed.sqlite')
const killed = join(folder, 'killed.sqlite')
const tried = join(folder, 'tried.sqlite')

beforeAll(() => {
  const database = openDatabase(closed)
  for (let commit = 1; commit <= COMMITS / 2; commit++) database.write(changesOf(commit))
  database.close()
  const again = openDatabase(closed)
  for (let commit = COMMITS / 2 + 1; commit <= COMMITS; commit++) again.write(changesOf(commit))
  for (const suffix of ['', '-wal']) copyFileSync(`${closed}${suffix}`, `${killed}${suffix}`)
  again.close()
})

afterAll(() => removeTemporaryFolder(folder))

describe('a registry that is cut', () => {
  it('is refused at every length, unless the last page loses only zeros', () => {
    const { size } = statSync(closed)
    for (let bytes = 512; bytes < size; bytes += 512) {
      take(closed)
      truncateSync(tried, bytes)
      expect(attempt(), `at ${bytes} bytes`).toMatch(bytes > size - PAGE ? REFUSED_OR_COMPLETE : REFUSED)
    }
  })

  it('is refused at lengths within its first page', () => {
    for (const bytes of [2, 15, 16, 99, 100, 511]) {
      take(closed)
      truncateSync(tried, bytes)
      expect(attempt(), `at ${bytes} bytes`).toMatch(REFUSED)
    }
  })

  it('is refused or complete when its log is there', () => {
    for (let bytes = 0; bytes < statSync(killed).size; bytes += 512) {
      take(killed)
      truncateSync(tried, bytes)
      expect(attempt(), `at ${bytes} bytes`).toMatch(REFUSED_OR_COMPLETE)
    }
  })

  it('has whole commits when the log is cut', () => {
    const found = new Set<string>()
    const { size } = statSync(`${killed}-wal`)
    for (let bytes = 0; bytes < size + 512; bytes += 512) {
      take(killed)
      truncateSync(`${tried}-wal`, Math.min(bytes, size))
      found.add(attempt())
    }
    const counts = Array.from({ length: COMMITS / 2 + 1 }, (_, index) => `${COMMITS / 2 + index} commits`)
    expect([...found]).toEqual(counts)
  })
})

describe('a registry with a bit that has changed', () => {
  it.each([
    ['', closed],
    [', its log beside it', killed],
  ])('is refused or complete%s', (_, source) => {
    const bytes = readFileSync(source)
    const random = randomFrom(7)
    const outcomes = { refused: 0, complete: 0 }
    const anywhere = Array.from({ length: FLIPS }, () => Math.floor(random() * bytes.length * 8))
    const inHeader = Array.from({ length: 100 * 8 }, (_, index) => index)
    // The fifth byte of a page counts its rows.
    const inCounts = Array.from({ length: (bytes.length / PAGE) * 8 }, (_, bit) => {
      return ((bit >> 3) * PAGE + (bit < 8 ? 104 : 4)) * 8 + (bit & 7)
    })
    for (const bit of [...inHeader, ...inCounts, ...anywhere]) {
      take(source)
      writeFileSync(tried, flipped(bytes, bit))
      const outcome = attempt()
      if (outcome === `${COMMITS} commits`) outcomes.complete += 1
      else {
        expect(outcome, `bit ${bit}`).toMatch(REFUSED)
        outcomes.refused += 1
      }
    }
    expect(outcomes.refused).toBeGreaterThan(50)
    expect(outcomes.complete).toBeGreaterThan(50)
  })

  it('has whole commits when the bit is in the log', () => {
    const log = readFileSync(`${killed}-wal`)
    const random = randomFrom(11)
    for (let round = 0; round < FLIPS; round++) {
      const bit = Math.floor(random() * log.length * 8)
      take(killed)
      writeFileSync(`${tried}-wal`, flipped(log, bit))
      const [count, text] = attempt().split(' ')
      expect(text, `bit ${bit}`).toBe('commits')
      expect(Number(count)).toBeGreaterThanOrEqual(COMMITS / 2)
    }
  })
})

describe('a file that is no registry', () => {
  const foreign = (sql: string) => (path: string) => {
    const database = new DatabaseSync(path)
    database.exec(sql)
    database.close()
  }
  const TEXTS: Readonly<Record<string, [make: (path: string) => void, text: RegExp]>> = {
    'a text': [(path) => writeFileSync(path, 'hello\n'.repeat(1000)), REFUSED],
    'a short text': [(path) => writeFileSync(path, 'hi'), REFUSED],
    zeros: [(path) => writeFileSync(path, Buffer.alloc(16_384)), REFUSED],
    'another database': [foreign('CREATE TABLE cats (name)'), /damaged \(the database of another program\)/],
    'a database of a negative version': [
      foreign('PRAGMA user_version = -1'),
      /damaged \(the database of another program\)/,
    ],
    'a database of its version': [foreign('PRAGMA user_version = 1'), /damaged \(no such table: instances\)/],
    'tables of other columns': [
      foreign(`${TABLES.map((table) => `CREATE TABLE ${table} (key)`).join(';')}; PRAGMA user_version = 1`),
      /damaged \(no such column: sum\)/,
    ],
    'a newer registry': [
      foreign('CREATE TABLE later (a); PRAGMA user_version = 2'),
      /of schema version 2, newer than 1, want a newer program, or this one started with --rebuild$/,
    ],
    'a folder': [(path) => mkdirSync(path), /unable to open database file$/],
  }

  it.each(Object.entries(TEXTS))('is refused in one sentence that names it: %s', async (_, [make, text]) => {
    const state = temporaryFolder()
    const path = join(state, 'registry.sqlite')
    make(path)
    const before = statSync(path).isFile() ? readFileSync(path) : undefined
    const error = await openRegistry(state).then(
      () => undefined,
      (thrown: Error) => thrown,
    )
    expect(error?.message).toMatch(text)
    expect(error?.message.startsWith(`${path}: `)).toBe(true)
    expect(error?.message).not.toContain('\n')
    if (before !== undefined) expect(readFileSync(path)).toEqual(before)
  })
})

describe('a write that fails', () => {
  it('is INTERNAL and names the file', () => {
    const path = join(folder, 'failing.sqlite')
    const database = openDatabase(path)
    database.close()
    expect(() => database.write(changesOf(1))).toThrow(
      expect.objectContaining({ code: 'INTERNAL', message: `${path}: database is not open` }),
    )
  })
})

describe('migrations', () => {
  it('leads an older registry to the newest version, once', () => {
    const path = join(temporaryFolder(), 'registry.sqlite')
    const old = openDatabase(path)
    old.write(changesOf(1))
    old.close()
    const steps = [...MIGRATIONS, 'CREATE TABLE added (a)', 'INSERT INTO added VALUES (1)']
    for (let round = 0; round < 2; round++) openDatabase(path, steps).close()
    expect(versionOf(path)).toBe(3)
    expect(numberOf(path, 'SELECT count(*) FROM added')).toBe(1)
    expect(() => openDatabase(path)).toThrow('of schema version 3, newer than 1')
  })

  it('carries out all of a step or none', () => {
    const path = join(temporaryFolder(), 'registry.sqlite')
    openDatabase(path).close()
    const steps = [...MIGRATIONS, 'CREATE TABLE added (a); INSERT INTO missing VALUES (1)']
    expect(() => openDatabase(path, steps)).toThrow('no such table: missing')
    expect(versionOf(path)).toBe(1)
    openDatabase(path, [...MIGRATIONS, 'CREATE TABLE added (a)']).close()
  })
})

function changesOf(commit: number): readonly Change[] {
  return TABLES.map((table) => ({ table, key: `${table} ${commit}`, payload: payloadOf(table, commit) }))
}

function payloadOf(table: string, commit: number): Uint8Array {
  // Some of them take pages of their own.
  return Buffer.alloc(commit % 4 === 0 ? 6000 : 40, `${table} ${commit} `)
}

function take(source: string): void {
  copyFileSync(source, tried)
  if (existsSync(`${source}-wal`)) copyFileSync(`${source}-wal`, `${tried}-wal`)
  else rmSync(`${tried}-wal`, { force: true })
}

/** Opens the tried registry: how many commits it has, each of them whole, or the error. */
function attempt(): string {
  let database: Database
  try {
    database = openDatabase(tried)
  } catch (error) {
    return String(error instanceof Error ? error.message : error)
  }
  try {
    database.write([{ table: 'settings', key: 'none', payload: undefined }])
    const tables = TABLES.map((table) => [table, database.rows(table)] as const)
    const count = tables[0]?.[1].size ?? 0
    for (const [table, rows] of tables) {
      const expected = Array.from({ length: count }, (_, index) => index + 1)
      const wanted = new Map(
        expected.map((commit) => [`${table} ${commit}`, payloadOf(table, commit)] as const),
      )
      if (!sameRows(rows, wanted)) return `${table} has other rows`
    }
    return `${count} commits`
  } finally {
    database.close()
  }
}

function sameRows(rows: ReadonlyMap<string, Uint8Array>, wanted: ReadonlyMap<string, Uint8Array>): boolean {
  return (
    rows.size === wanted.size &&
    [...wanted].every(([key, payload]) => Buffer.compare(rows.get(key) ?? Buffer.of(), payload) === 0)
  )
}

function flipped(bytes: Uint8Array, bit: number): Uint8Array {
  const copy = Uint8Array.from(bytes)
  copy[bit >> 3] = (copy[bit >> 3] ?? 0) ^ (1 << (bit & 7))
  return copy
}

function versionOf(path: string): number {
  return numberOf(path, 'PRAGMA user_version')
}

function numberOf(path: string, query: string): number {
  const database = new DatabaseSync(path)
  try {
    return Number(Object.values(database.prepare(query).get() ?? {})[0])
  } finally {
    database.close()
  }
}
