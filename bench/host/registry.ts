import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { openRegistry } from '../../src/host/instance/registry/open-registry.ts'
import { median, report } from '../support/figure.ts'

/** A row that is written to the daemon's registry, and the load of its rows, against SQLite alone with a sync of each commit. */
const WRITES = 400
const LOADS = 50
const ROWS = 1000
const PAYLOAD = Buffer.alloc(1000, 'x')

const folder = makeTemporaryFolder(tmpdir())
const bare = new DatabaseSync(join(folder, 'bare.sqlite'))
const registry = await openRegistry(folder)
try {
  bare.exec('PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL')
  bare.exec('CREATE TABLE steps (key TEXT PRIMARY KEY, payload BLOB) STRICT, WITHOUT ROWID')
  const store = bare.prepare('INSERT OR REPLACE INTO steps (key, payload) VALUES (?, ?)')
  const all = bare.prepare('SELECT key, payload FROM steps')
  const storeBare = (key: string) => {
    bare.exec('BEGIN IMMEDIATE')
    store.run(key, PAYLOAD)
    bare.exec('COMMIT')
  }
  const storeRow = (key: string) => registry.commit([{ table: 'steps', key, payload: PAYLOAD }])
  const keys = Array.from({ length: ROWS }, (_, index) => `instance ${index}`)
  // Afterwards both logs have their full size: a file that grows is slower to sync.
  for (const key of keys) {
    storeBare(key)
    await storeRow(key)
  }

  // In turns, because the disk is faster at some times than at others.
  const writes = { bare: [] as number[], registry: [] as number[] }
  for (const key of keys.slice(0, WRITES)) {
    writes.bare.push(await timeMs(() => storeBare(key)))
    writes.registry.push(await timeMs(() => storeRow(key)))
  }
  const loads = { bare: [] as number[], registry: [] as number[] }
  for (let round = 0; round < LOADS; round++) {
    loads.bare.push(await timeMs(() => new Map(all.all().map(({ key, payload }) => [key, payload]))))
    loads.registry.push(await timeMs(() => registry.load('steps')))
  }
  report({
    figure: 'registry write',
    value: median(writes.registry),
    unit: 'ms',
    floor: median(writes.bare),
    limit: 1.5,
  })
  report({
    figure: `registry load of ${ROWS} rows`,
    value: median(loads.registry),
    unit: 'ms',
    floor: median(loads.bare),
    limit: 10,
  })
} finally {
  await registry.close()
  bare.close()
  removeTemporaryFolder(folder)
}

async function timeMs(work: () => unknown): Promise<number> {
  const begin = performance.now()
  await work()
  return performance.now() - begin
}
