import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { type BlockDevices, linuxBlockDevices } from '../../../src/os/devices/block-devices.ts'
import type { MappedTarget } from '../../../src/os/devices/device-mapper-message.ts'
import type { Files } from '../../../src/os/files/files.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { FakeBlockDevices } from '../../support/fakes/fake-devices.ts'
import { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { FakeMounts } from '../../support/fakes/files/fake-mounts.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

interface Implementation {
  readonly blockDevices: BlockDevices
  readonly files: Pick<Files, 'list' | 'lstat' | 'readText' | 'stat'>
  /** The node of a disk with this content. */
  readonly node: string
}

async function onLinux(content: Buffer): Promise<Implementation> {
  const native = await realNative()
  const file = join(temporaryFolder(), 'disk')
  writeFileSync(file, content)
  const node = execFileSync('losetup', ['--find', '--show', file], { encoding: 'utf8' }).trim()
  onTestFinished(() => void execFileSync('losetup', ['--detach', node]))
  return { blockDevices: linuxBlockDevices(native), files: linuxFiles(native), node }
}

async function fake(content: Buffer): Promise<Implementation> {
  const files = new FakeFiles(new FakeMounts())
  const blockDevices = new FakeBlockDevices(files)
  blockDevices.contents.set('/dev/vdb', content)
  blockDevices.failWith = ({ parameters }) => (parameters === BAD.parameters ? 'EINVAL' : undefined)
  return { blockDevices, files, node: '/dev/vdb' }
}

const BAD: MappedTarget = { type: 'linear', sectors: 8n, parameters: 'nonsense' }
const NAME = 'os-block-devices-test'
const missing = /\bdevice-mapper\b/.test(readFileSync('/proc/misc', 'utf8'))
  ? undefined
  : 'this kernel has no device mapper'

describe.each([
  { name: 'linuxBlockDevices', build: onLinux, noMapper: missing },
  { name: 'FakeBlockDevices', build: fake, noMapper: undefined },
])('$name', ({ build, noMapper }) => {
  it('reads a part of a disk, less at its end, and nothing behind it', async () => {
    const { blockDevices, node } = await build(Buffer.alloc(4096, 'a').fill('b', 1000, 1100))
    const read = async (...part: [number, number]) => String(await blockDevices.read(node, ...part))
    expect(await read(999, 102)).toBe(`a${'b'.repeat(100)}a`)
    expect(await read(4090, 100)).toBe('aaaaaa')
    expect(await read(4096, 1)).toBe('')
    expect(await read(10_000, 1)).toBe('')
  })

  it('names the disk that it does not find', async () => {
    const { blockDevices } = await build(Buffer.alloc(512))
    await expect(blockDevices.read('/dev/no-disk', 0, 1)).rejects.toMatchObject({
      ...{ code: 'INTERNAL', errno: 'ENOENT', message: 'read /dev/no-disk: ENOENT' },
    })
  })

  describe('with a device mapper', () => {
    let mapper: Implementation
    let target: MappedTarget
    beforeEach(async ({ skip }) => {
      skip(noMapper !== undefined, noMapper)
      mapper = await build(Buffer.alloc(8192))
      target = { type: 'linear', sectors: 8n, parameters: `${mapper.node} 0` }
    })

    it('maps a block device, which sysfs names, until it is unmapped', async () => {
      const { blockDevices, files } = mapper
      const device = await blockDevices.map(NAME, target)
      expect(device).toMatch(/^\/dev\/dm-\d+$/)
      expect(await files.lstat(device)).toMatchObject({ kind: 'block' })
      const folder = device.replace('/dev/', '/sys/block/')
      expect(await files.readText(`${folder}/dm/name`)).toBe(`${NAME}\n`)
      await blockDevices.unmap(NAME)
      await expect.poll(() => files.lstat(device)).toBeUndefined()
      await expect.poll(() => files.lstat(folder)).toBeUndefined()
    })

    it('has each name once', async () => {
      const { blockDevices } = mapper
      const gone = { code: 'INTERNAL', errno: 'ENXIO', message: `device mapper: remove ${NAME}: ENXIO` }
      await expect(blockDevices.unmap(NAME)).rejects.toMatchObject(gone)
      await blockDevices.map(NAME, target)
      await expect(blockDevices.map(NAME, target)).rejects.toMatchObject({
        ...{ code: 'INTERNAL', errno: 'EBUSY', message: `device mapper: create ${NAME}: EBUSY` },
      })
      await blockDevices.unmap(NAME)
      await noneLeft(mapper)
      await expect(blockDevices.unmap(NAME)).rejects.toMatchObject(gone)
    })

    it('leaves nothing of a device whose target is refused', async () => {
      const { blockDevices } = mapper
      await expect(blockDevices.map(NAME, BAD)).rejects.toMatchObject({
        ...{ code: 'INTERNAL', errno: 'EINVAL', message: `device mapper: load ${NAME}: EINVAL` },
      })
      await noneLeft(mapper)
    })
  })
})

/** A program such as udev may have the device open for a moment; the kernel removes the device after that. */
async function noneLeft({ files }: Implementation): Promise<void> {
  const names = async () => {
    const nodes = (await files.list('/sys/block')).map((node) => `/sys/block/${node}/dm/name`)
    return await Promise.all(
      nodes.map(async (file) => ((await files.stat(file)) === undefined ? '' : files.readText(file))),
    )
  }
  await expect.poll(names).not.toContain(`${NAME}\n`)
}
