import { execFileSync } from 'node:child_process'
import * as files from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { claimSaved, readClaim, releaseSaved } from '../../../src/host/instance/record/saved-claim.ts'
import { type Manifest, readManifest, writeManifest } from '../../../src/host/migration/manifest.ts'
import { factsOf } from '../../../src/host/migration/memory-file.ts'
import {
  checkOutside,
  isSaved,
  outsideFacts,
  publish,
  withSample,
  workOf,
} from '../../../src/host/migration/saved-folder.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const ID = 'a1b2c3d4-0000-4000-8000-000000000001'

const FACTS = { sizeBytes: 1, digest: '0'.repeat(64) }

const MANIFEST: Manifest = {
  ...{ version: 1, id: ID, name: 'one', tenant: '', key: 'web', createdMs: 1, state: 'running' },
  host: { qemu: 'QEMU 7.2.22', acceleration: 'tcg', cpu: '' },
  ...{ memoryForm: 'stream', isClone: false, hasAgent: false, unplugged: '' },
  files: { 'state.binpb': FACTS, devices: FACTS },
  ...{ outside: [], streams: [] },
}

describe('a saved machine that has its name', () => {
  it('is there, whatever goes wrong afterwards', async () => {
    const folder = join(temporaryFolder(), 'one')
    await files.mkdir(workOf(folder, ID))
    const warned: unknown[] = []
    const failing = async (path: string) => {
      if (path === dirname(folder)) throw new Error('asked for')
    }
    await publish(folder, MANIFEST, { warn: (error) => warned.push(error), sync: failing })
    expect(warned).toEqual([new Error('asked for')])
    expect(await isSaved(folder, ID)).toBe(true)
    expect(await files.readdir(dirname(folder))).toEqual([basename(folder)])
  })
})

describe('a manifest', () => {
  const known = { 'state.binpb': FACTS, devices: FACTS }
  const outside = { field: 'f', backend: '', path: '/k', sizeBytes: 1, changed: '', digest: '' }
  const stream = { port: 1, container: '', exec: '', stream: 'stdin', isLive: true }
  const whole = { ...MANIFEST, files: known, outside: [outside], streams: [stream] }
  const written = async (manifest: unknown) => {
    const folder = temporaryFolder()
    await writeManifest(folder, manifest as Manifest)
    return folder
  }

  it('is read as it was written', async () => {
    expect(await readManifest(await written(whole))).toEqual(whole)
    const files_ = { ...known, memory: FACTS, 'disks/12.qcow2': FACTS, 'streams/65536.ring': FACTS }
    const more = { ...whole, memoryForm: 'file', files: files_ }
    expect(await readManifest(await written(more))).toEqual(more)
  })

  it.each([
    ['id', { id: '../../etc' }],
    ['id', { id: undefined }],
    ['name', { name: 1 }],
    ['createdMs', { createdMs: -1 }],
    ['host', { host: { qemu: 'QEMU 7' } }],
    ['state', { state: 'gone' }],
    ['memoryForm', { memoryForm: 'other' }],
    ['isClone', { isClone: 'yes' }],
    ['unplugged', { unplugged: 7 }],
    ['files', { files: { ...known, '../manifest.json': FACTS } }],
    ['files', { files: { ...known, 'disks/../../x.qcow2': FACTS } }],
    ['files', { files: { ...known, 'manifest.json': FACTS } }],
    ['files', { files: { ...known, devices: { sizeBytes: 1 } } }],
    ['files: no devices', { files: { 'state.binpb': FACTS } }],
    ['files: no memory', { memoryForm: 'file' }],
    ['outside', { outside: {} }],
    ['outside', { outside: [{ ...outside, path: 'k' }] }],
    ['outside', { outside: [{ ...outside, sample: 1 }] }],
    ['streams', { streams: [{ ...stream, port: '../1' }] }],
    ['streams', { streams: [{ ...stream, port: 2 ** 32 }] }],
  ])('is refused for its %s where that is %o', async (field, change) => {
    await expect(readManifest(await written({ ...whole, ...change }))).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(new RegExp(`manifest.json: damaged: ${field}$`)),
    })
  })

  it('is refused when a bit of it is another one', async () => {
    const folder = await written(whole)
    const path = join(folder, 'manifest.json')
    const bytes = await files.readFile(path)
    for (let at = 0; at < bytes.length - 1; at += 5) {
      const flipped = Uint8Array.from(bytes)
      flipped[at] = (flipped[at] ?? 0) ^ (1 << (at & 3))
      await files.writeFile(path, flipped)
      await expect(readManifest(folder), `byte ${at}`).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    }
  })
})

describe('a disk of a saved machine', () => {
  const MIB = 2 ** 20
  async function saved() {
    const path = join(temporaryFolder(), 'disk')
    const content = Buffer.alloc(32 * MIB)
    for (let at = 0; at < content.length; at += 4096) content.writeUInt32LE(at, at)
    await files.writeFile(path, content)
    const facts = await outsideFacts({ field: 'backends.root.file.path', backend: 'root', path })
    return { content, path, disk: await withSample(facts) }
  }
  const refusal = (path: string) =>
    `backends.root.file.path: ${path}: another disk than the machine was saved with`

  it('is the same file, or a copy of it', async () => {
    const { content, disk, path } = await saved()
    await expect(checkOutside(disk, path)).resolves.toBeUndefined()
    await files.writeFile(`${path}.copy`, content)
    await expect(checkOutside(disk, `${path}.copy`)).resolves.toBeUndefined()
  })

  it.each([0, 32 * MIB - 1])('is not a copy in which byte %i is another one', async (at) => {
    const { content, disk, path } = await saved()
    content[at] = (content[at] ?? 0) ^ 1
    await files.writeFile(`${path}.copy`, content)
    await expect(checkOutside(disk, `${path}.copy`)).rejects.toThrow(refusal(`${path}.copy`))
  })

  it('is not another file that has come into its place with its time', async () => {
    const { disk, path, content } = await saved()
    const { mtimeNs } = await files.stat(path, { bigint: true })
    await files.writeFile(`${path}.new`, content.fill(7))
    execFileSync('touch', [
      '-d',
      `@${mtimeNs / 10n ** 9n}.${`${mtimeNs % 10n ** 9n}`.padStart(9, '0')}`,
      `${path}.new`,
    ])
    await files.rename(`${path}.new`, path)
    expect((await files.stat(path, { bigint: true })).mtimeNs).toBe(mtimeNs)
    await expect(checkOutside(disk, path)).rejects.toThrow(refusal(path))
  })

  it('that an earlier version has saved is checked by size and time', async () => {
    const { content, disk, path } = await saved()
    const { inode: _, sample: __, ...earlier } = disk
    await files.writeFile(`${path}.copy`, content.fill(7))
    await expect(checkOutside(earlier, `${path}.copy`)).resolves.toBeUndefined()
  })
})

describe('a file that a machine boots from', () => {
  const facts = (path: string) => outsideFacts({ field: 'board.kernel', backend: '', path })

  it('is no FIFO, whose writer would be waited for', async () => {
    const path = join(temporaryFolder(), 'kernel')
    execFileSync('mkfifo', [path])
    await expect(facts(path)).rejects.toThrow(`board.kernel: ${path}: want a file or a block device`)
    await expect(factsOf(path)).rejects.toThrow(`${path}: want a file or a block device`)
  })

  it('has no more bytes than QEMU takes', async () => {
    const path = join(temporaryFolder(), 'kernel')
    await files.writeFile(path, '')
    await files.truncate(path, 2 ** 32)
    await expect(facts(path)).rejects.toThrow('4294967296 bytes, want at most 4294967295')
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

  it('keeps others out when it cannot be read, and is not released by them', async () => {
    const saved = temporaryFolder()
    await files.writeFile(join(saved, 'resumed.json'), '')
    await expect(claimSaved(saved, claimOf('web'))).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
    await releaseSaved(saved, claimOf('web'))
    expect(await files.readdir(saved)).toEqual(['resumed.json'])
  })
})
