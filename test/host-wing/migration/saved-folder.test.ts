import * as files from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { claimSaved, readClaim, releaseSaved } from '../../../src/host/instance/record/saved-claim.ts'
import { isSaved, type Manifest, publish, workOf } from '../../../src/host/migration/saved-folder.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Paths that cannot be opened, as on a disk that fails. */
const broken = new Set<string>()

vi.mock('node:fs/promises', { spy: true })

const ID = 'a1b2c3d4-0000-4000-8000-000000000001'

const MANIFEST: Manifest = {
  ...{ version: 1, id: ID, name: 'one', tenant: '', key: 'web', createdMs: 1, state: 'running' },
  host: { qemu: 'QEMU 7.2.22', acceleration: 'tcg', cpu: '' },
  ...{ memoryForm: 'stream', isClone: false, hasAgent: false, unplugged: '' },
  ...{ files: {}, outside: [], streams: [] },
}

beforeEach(async () => {
  broken.clear()
  const { open } = await vi.importActual<typeof files>('node:fs/promises')
  vi.mocked(files.open).mockImplementation(async (path, ...others) => {
    if (broken.has(String(path))) throw Object.assign(new Error('asked for'), { code: 'EIO' })
    return await open(path, ...others)
  })
})

describe('a saved machine that has its name', () => {
  it('is there, whatever goes wrong afterwards', async () => {
    const folder = join(temporaryFolder(), 'one')
    await files.mkdir(workOf(folder, ID))
    broken.add(dirname(folder))
    const warned: unknown[] = []
    await publish(folder, MANIFEST, (error) => warned.push(error))
    expect(warned).toMatchObject([{ code: 'EIO' }])
    expect(await isSaved(folder, ID)).toBe(true)
    expect(await files.readdir(dirname(folder))).toEqual([basename(folder)])
  })
})

describe('the claim of a saved machine', () => {
  const claimOf = (key: string) => ({ id: ID, folder: `/instances/${key}`, key })

  it('is of one instance of many at once, and is released by its own alone', async () => {
    const saved = temporaryFolder()
    const keys = Array.from({ length: 20 }, (_, index) => `web-${index}`)
    const outcomes = await Promise.allSettled(keys.map((key) => claimSaved(saved, claimOf(key))))
    const won = keys.filter((_, index) => outcomes[index]?.status === 'fulfilled')
    expect(won).toHaveLength(1)
    const [winner = ''] = won
    for (const key of keys) if (key !== winner) await releaseSaved(saved, claimOf(key))
    expect(await readClaim(saved)).toEqual(claimOf(winner))
    await claimSaved(saved, claimOf(winner))
    expect(await files.readdir(saved)).toEqual(['resumed.json'])
    await releaseSaved(saved, claimOf(winner))
    expect(await files.readdir(saved)).toEqual([])
  })

  it('is not there before it is whole', async () => {
    const saved = temporaryFolder()
    const { writeFile } = await vi.importActual<typeof files>('node:fs/promises')
    const [begun, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    vi.mocked(files.writeFile).mockImplementationOnce(async (path, text, options) => {
      await writeFile(path, '', options)
      begun.resolve()
      await go.promise
      await writeFile(path, text)
    })
    const claimed = claimSaved(saved, claimOf('web'))
    await begun.promise
    expect(await readClaim(saved)).toBeUndefined()
    go.resolve()
    await claimed
    expect(await readClaim(saved)).toEqual(claimOf('web'))
  })

  it('keeps others out when it cannot be read, and is not released by them', async () => {
    const saved = temporaryFolder()
    await files.writeFile(join(saved, 'resumed.json'), '')
    await expect(claimSaved(saved, claimOf('web'))).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await releaseSaved(saved, claimOf('web'))
    expect(await files.readdir(saved)).toEqual(['resumed.json'])
  })
})
