import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import type { Change } from '../../../../src/host/instance/registry/registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

it('answers a commit once the log that has it is synced, and holds up nothing else meanwhile', async () => {
  const [folder, copy] = [temporaryFolder(), temporaryFolder()]
  const syncing = Promise.withResolvers<void>()
  const disk = Promise.withResolvers<void>()
  const registry = await openRegistry(folder, () => {
    for (const suffix of ['', '-wal'])
      copyFileSync(join(folder, `registry.sqlite${suffix}`), join(copy, `registry.sqlite${suffix}`))
    syncing.resolve()
    return disk.promise
  })
  const ended: string[] = []
  const commits = ['a', 'b'].map(async (key) => {
    if (key === 'b') await syncing.promise
    await registry.commit([put(key)])
    ended.push(key)
  })
  await syncing.promise
  await new Promise(setImmediate)
  expect(ended).toEqual([])
  expect(await keysOf(copy)).toEqual(['a'])
  expect([...(await registry.load('steps')).keys()]).toEqual(['a'])
  disk.resolve()
  await Promise.all(commits)
  expect(ended).toEqual(['a', 'b'])
  expect(registry.statistics.transactions).toBe(2)
  await registry.close()
})

it('takes nothing after a sync that failed, and has what was answered before', async () => {
  const folder = temporaryFolder()
  let syncs = 0
  const registry = await openRegistry(folder, async (log) => {
    syncs += 1
    if (syncs === 2) throw Object.assign(new Error('fdatasync'), { code: 'EIO', errno: -5 })
    await log.datasync()
  })
  await registry.commit([put('answered')])
  for (const key of ['b', 'c']) {
    await expect(registry.commit([put(key)], { frees: true })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: `fdatasync ${folder}/registry.sqlite-wal: EIO`,
    })
  }
  await registry.close()
  const found = await keysOf(folder)
  expect(found).toContain('answered')
  expect(found).not.toContain('c')
})

function put(key: string): Change {
  return { table: 'steps', key, payload: Buffer.from(key) }
}

async function keysOf(folder: string): Promise<readonly string[]> {
  const registry = await openRegistry(folder)
  const rows = await registry.load('steps')
  await registry.close()
  return [...rows.keys()]
}
