import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, describe, expect, it } from 'vitest'
import { MAX_KEY_BYTES, MAX_PAYLOAD_BYTES } from '../../../../src/host/instance/registry/check-changes.ts'
import { MIGRATIONS } from '../../../../src/host/instance/registry/database.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { MAX_WAITING_BYTES, openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { type Change, type Registry, TABLES } from '../../../../src/host/instance/registry/registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const opened: Registry[] = []

afterEach(async () => {
  for (const registry of opened.splice(0)) await registry.close()
})

const KINDS: Readonly<Record<string, () => Promise<Registry> | Registry>> = {
  memoryRegistry,
  openRegistry: () => openRegistry(temporaryFolder()),
}

describe.each(Object.entries(KINDS))('%s', (_, make) => {
  const open = async () => {
    const registry = await make()
    opened.push(registry)
    return registry
  }

  it('begins with empty tables', async () => {
    const registry = await open()
    for (const table of TABLES) expect(await registry.load(table)).toEqual(new Map())
  })

  it('stores, replaces and removes rows of each table', async () => {
    const registry = await open()
    for (const table of TABLES) {
      await registry.commit([put('a', '1', table), put('b', '2', table), put('c', '3', table)])
      await registry.commit([put('a', 'one', table), remove('b', table), remove('never there', table)])
      expect(await rowsOf(registry, table)).toEqual({ a: 'one', c: '3' })
    }
  })

  it('carries out the changes of a commit in their order', async () => {
    const registry = await open()
    await registry.commit([put('a', '1'), remove('a'), put('b', '1'), put('b', '2')])
    expect(await rowsOf(registry)).toEqual({ b: '2' })
  })

  it('carries out commits in their order', async () => {
    const registry = await open()
    const commits = Array.from({ length: 100 }, (_, index) => registry.commit([put('a', String(index))]))
    await Promise.all(commits)
    expect(await rowsOf(registry)).toEqual({ a: '99' })
  })

  it('takes an empty payload, an empty key and any text as a key', async () => {
    const registry = await open()
    const keys = ['', 'ü', '日本', 'a\0b', "'; DROP TABLE steps", '\u{1F600}', 'a/b']
    await registry.commit(keys.map((key) => put(key, '')))
    expect(Object.keys(await rowsOf(registry)).toSorted()).toEqual(keys.toSorted())
  })

  it('stores what the payload was at the call', async () => {
    const registry = await open()
    const buffer = Buffer.from('...abc...')
    const commit = registry.commit([{ table: 'steps', key: 'a', payload: buffer.subarray(3, 6) }])
    buffer.fill('x')
    await commit
    expect(await rowsOf(registry)).toEqual({ a: 'abc' })
    const loaded = (await registry.load('steps')).get('a')
    loaded?.fill(0)
    expect(await rowsOf(registry)).toEqual({ a: 'abc' })
  })

  it('refuses a payload or key above its limit, and carries out nothing of that commit', async () => {
    const registry = await open()
    const limits = [
      { table: 'steps', key: 'k', payload: new Uint8Array(MAX_PAYLOAD_BYTES + 1) },
      put('ü'.repeat(MAX_KEY_BYTES / 2 + 1), '1'),
      put('half a pair \ud800', '1'),
    ] as const
    for (const change of limits) {
      const commit = registry.commit([put('a', '1'), change])
      await expect(commit).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    }
    expect(await rowsOf(registry)).toEqual({})
    const largest: Change = {
      table: 'steps',
      key: 'k'.repeat(MAX_KEY_BYTES),
      payload: new Uint8Array(MAX_PAYLOAD_BYTES),
    }
    await registry.commit([largest])
    expect((await registry.load('steps')).get(largest.key)?.length).toBe(MAX_PAYLOAD_BYTES)
  })

  it('waits for its commits at the close, and refuses later calls', async () => {
    const registry = await make()
    const ended: string[] = []
    const commit = registry.commit([put('a', '1')]).then(() => ended.push('commit'))
    await Promise.all([registry.close().then(() => ended.push('close')), commit])
    expect(ended).toEqual(['commit', 'close'])
    await expect(registry.commit([put('a', '2')])).rejects.toThrow('registry: closed')
    await expect(registry.load('steps')).rejects.toThrow('registry: closed')
    await registry.close()
  })
})

describe('openRegistry', () => {
  it('keeps the rows after its close', async () => {
    const folder = temporaryFolder()
    const first = await openRegistry(folder)
    await first.commit(TABLES.map((table) => put('a', table, table)))
    await first.close()
    const second = await openRegistry(folder)
    opened.push(second)
    for (const table of TABLES) expect(await rowsOf(second, table)).toEqual({ a: table })
  })

  it('writes the commits of one turn in one transaction', async () => {
    const registry = await openRegistry(temporaryFolder())
    opened.push(registry)
    const commit = (key: string) => registry.commit([put(key, '1')])
    const inMicrotasks = async () => {
      for (let index = 0; index < 20; index++) await undefined
      await commit('later in the turn')
    }
    await Promise.all([commit('a'), commit('b'), commit('c'), inMicrotasks()])
    expect(registry.statistics).toEqual({ commits: 4, transactions: 1 })
  })

  it('writes the commits that arrive during a transaction in the next one', async () => {
    const registry = await openRegistry(temporaryFolder())
    opened.push(registry)
    const commit = (key: string) => registry.commit([put(key, '1')])
    const first = commit('a')
    // The transaction of the first has begun: its request has been sent at the end of the last turn.
    await new Promise(setImmediate)
    const later: Promise<void>[] = []
    for (let index = 0; index < 5; index++) later.push(commit(`b${index}`))
    await Promise.all([first, ...later])
    expect(registry.statistics).toEqual({ commits: 6, transactions: 2 })
  })

  it('refuses commits while too many bytes wait, and takes them afterwards', async () => {
    const registry = await openRegistry(temporaryFolder())
    opened.push(registry)
    const big = (key: string): Change => ({ table: 'steps', key, payload: new Uint8Array(MAX_PAYLOAD_BYTES) })
    const count = Math.floor(MAX_WAITING_BYTES / MAX_PAYLOAD_BYTES) - 1
    const taken = Array.from({ length: count }, (_, index) => registry.commit([big(`k${index}`)]))
    const refused = registry.commit([big('x'), big('y')])
    await expect(refused).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    await Promise.all(taken)
    await registry.commit([big('x')])
    expect((await registry.load('steps')).size).toBe(count + 1)
  })

  it('makes its files for its user only', async () => {
    const folder = temporaryFolder()
    const registry = await openRegistry(folder)
    opened.push(registry)
    await registry.commit([put('a', '1')])
    const modes = readdirSync(folder).map((name) => [
      name,
      (statSync(join(folder, name)).mode & 0o777).toString(8),
    ])
    expect(Object.fromEntries(modes)).toEqual({
      'registry.lock': '600',
      'registry.reserve': '600',
      'registry.sqlite': '600',
      'registry.sqlite-wal': '600',
    })
  })

  it('has pages in which its rows are whole, and keeps those of an earlier file', async () => {
    for (const [before, bytes] of [
      [undefined, 8192],
      [4096, 4096],
    ]) {
      const folder = temporaryFolder()
      const path = join(folder, 'registry.sqlite')
      if (before !== undefined) {
        const earlier = new DatabaseSync(path)
        earlier.exec(`PRAGMA page_size = ${before}; ${MIGRATIONS[0]}; PRAGMA user_version = 1`)
        earlier.close()
      }
      const registry = await openRegistry(folder)
      await registry.commit([put('a', '1')])
      await registry.close()
      // The database header format of sqlite.org/fileformat.html.
      expect(readFileSync(path).readUInt16BE(16)).toBe(bytes)
    }
  })

  it('says that the folder is missing', async () => {
    await expect(openRegistry('/nowhere')).rejects.toMatchObject({
      message: expect.stringContaining('/nowhere/registry.lock'),
    })
  })
})

function put(key: string, text: string, table: Change['table'] = 'steps'): Change {
  return { table, key, payload: Buffer.from(text) }
}

function remove(key: string, table: Change['table'] = 'steps'): Change {
  return { table, key, payload: undefined }
}

async function rowsOf(registry: Registry, table: Change['table'] = 'steps'): Promise<Record<string, string>> {
  const rows = await registry.load(table)
  return Object.fromEntries([...rows].map(([key, payload]) => [key, Buffer.from(payload).toString()]))
}
