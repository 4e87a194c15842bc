import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import { withTemporaryFolder } from '../../src/build/temporary-folder.ts'

const top = mkdtempSync(join(tmpdir(), 'temporary-folder-test-'))
afterAll(() => rmSync(top, { recursive: true }))

let parent: string
beforeEach(() => {
  parent = join(mkdtempSync(join(top, 'case-')), 'not-there-yet')
})

describe('withTemporaryFolder', () => {
  it('removes the folder, whatever the outcome', async () => {
    await withTemporaryFolder(parent, async (folder) => writeFileSync(join(folder, 'file'), ''))
    await withTemporaryFolder(parent, async (folder) => renameSync(folder, join(parent, 'result')))
    const failed = withTemporaryFolder(parent, () => Promise.reject(new Error('no')))
    await expect(failed).rejects.toThrow('no')
    expect(readdirSync(parent)).toEqual(['result'])
  })

  it('removes the folder when the process exits early', () => {
    const script = `
      import { withTemporaryFolder } from ${JSON.stringify(join(import.meta.dirname, '../../src/build/temporary-folder.ts'))}
      await withTemporaryFolder(${JSON.stringify(parent)}, async () => process.exit(5))`
    const { status } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
    })
    expect({ status, left: readdirSync(parent) }).toEqual({ status: 5, left: [] })
  })

  it('removes the folders of killed processes, and no others', async () => {
    // 4194305 is above the kernel's largest pid.
    const names = ['microvm-4194305-abcdef', `microvm-${process.pid}-abcdef`, 'microvm-dist-abcdef']
    for (const name of names) mkdirSync(join(parent, name), { recursive: true })
    await withTemporaryFolder(parent, async () => {})
    expect(names.map((name) => existsSync(join(parent, name)))).toEqual([false, true, true])
  })

  it.each(['.', 'inner'])(
    'removes nothing through a mount that a killed process left at %s',
    async (name) => {
      const [left, others] = [join(parent, 'microvm-4194305-abcdef'), join(parent, 'others')]
      for (const folder of [join(left, name), others]) mkdirSync(folder, { recursive: true })
      writeFileSync(join(others, 'kept'), '')
      expect(spawnSync('mount', ['--bind', others, join(left, name)]).status).toBe(0)
      await withTemporaryFolder(parent, async () => {})
      expect(readdirSync(parent)).toEqual(['others'])
      expect(readdirSync(others)).toEqual(['kept'])
    },
  )
})
