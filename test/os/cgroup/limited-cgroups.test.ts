import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LimitedCgroups } from '../../../src/os/cgroup/limited-cgroups.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const LIMITS = { memoryBytes: 2 ** 30, cpuMilli: 1500, tasks: 100 }

/** A tree of files in place of the kernel's. */
function tree(...folders: readonly string[]): string {
  const root = temporaryFolder()
  for (const folder of folders) mkdirSync(join(root, folder), { recursive: true })
  return root
}

const read = (...names: readonly string[]) => readFileSync(join(...names), 'utf8')

describe('cgroups with limits', () => {
  it('have a folder in each hierarchy of v1, with its limits', async () => {
    const root = tree('memory', 'cpu', 'pids', 'freezer')
    const cgroups = await LimitedCgroups.find('parent', root)
    expect([...(cgroups?.controllers ?? [])]).toEqual(['memory', 'cpu', 'pids'])
    await cgroups?.make('one', LIMITS)
    expect(read(root, 'memory/parent/one/memory.limit_in_bytes')).toBe(`${2 ** 30}`)
    expect(read(root, 'cpu/parent/one/cpu.cfs_period_us')).toBe('100000')
    expect(read(root, 'cpu/parent/one/cpu.cfs_quota_us')).toBe('150000')
    expect(read(root, 'pids/parent/one/pids.max')).toBe('100')
    const folders = ['memory', 'cpu', 'pids'].map((name) => join(root, name, 'parent/one'))
    expect(await cgroups?.foldersOf('one')).toEqual(folders)
    expect(readdirSync(join(root, 'freezer'))).toEqual([])
  })

  it('have one folder on v2, below which the controllers are enabled', async () => {
    const root = tree()
    writeFileSync(join(root, 'cgroup.controllers'), 'cpuset cpu io memory pids')
    const cgroups = await LimitedCgroups.find('parent', root)
    await cgroups?.make('one', LIMITS)
    for (const folder of [root, join(root, 'parent')])
      expect(read(folder, 'cgroup.subtree_control')).toBe('+memory +cpu +pids')
    expect(read(root, 'parent/one/memory.max')).toBe(`${2 ** 30}`)
    expect(read(root, 'parent/one/cpu.max')).toBe('150000 100000')
    expect(read(root, 'parent/one/pids.max')).toBe('100')
    expect(await cgroups?.foldersOf('one')).toEqual([join(root, 'parent/one')])
  })

  it.each([
    ['v1', 'memory/parent/one', 'memory.memsw.limit_in_bytes', `${2 ** 30}`],
    ['v2', 'parent/one', 'memory.swap.max', '0'],
  ])(
    'have no swap besides their memory on %s, where the kernel can limit it',
    async (version, one, file, value) => {
      const root = tree('memory', `${one}/..`)
      if (version === 'v2') writeFileSync(join(root, 'cgroup.controllers'), 'memory')
      const cgroups = await LimitedCgroups.find('parent', root)
      await cgroups?.make('one', LIMITS)
      expect(readdirSync(join(root, one))).not.toContain(file)
      writeFileSync(join(root, one, file), 'max')
      await cgroups?.make('one', LIMITS)
      expect(read(root, one, file)).toBe(value)
    },
  )

  it('have only the limits that are wanted, and are made a second time', async () => {
    const root = tree('memory', 'pids')
    const cgroups = await LimitedCgroups.find('parent', root)
    expect([...(cgroups?.controllers ?? [])]).toEqual(['memory', 'pids'])
    await cgroups?.make('one', { tasks: 100 })
    await cgroups?.make('one', { tasks: 100 })
    expect(readdirSync(join(root, 'memory/parent'))).not.toContain('one')
    expect(readdirSync(join(root, 'pids/parent/one'))).toEqual(['pids.max'])
    expect(await cgroups?.foldersOf('one')).toEqual([join(root, 'pids/parent/one')])
  })

  it('are removed with their parent, and a second time', async () => {
    const root = tree('pids')
    const cgroups = await LimitedCgroups.find('parent', root)
    rmSync(join(root, 'pids/parent'), { recursive: true })
    for (const name of ['one', 'other']) mkdirSync(join(root, 'pids/parent', name), { recursive: true })
    for (const name of ['one', 'one']) await cgroups?.remove(name)
    expect(readdirSync(join(root, 'pids/parent'))).toEqual(['other'])
    await cgroups?.remove('other')
    expect(readdirSync(join(root, 'pids'))).toEqual([])
  })

  it('are none where none can be made', async () => {
    expect(await LimitedCgroups.find('parent', tree('freezer'))).toBe(undefined)
    const root = tree('pids')
    // A folder cannot be made below a file.
    writeFileSync(join(root, 'pids/parent'), '')
    expect(await LimitedCgroups.find('parent', root)).toBe(undefined)
  })
})
