import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { resizeVolume } from '../../../src/handlers/guest/resize-volume.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { hotplugOf } from '../../support/handlers/device/device-dependencies.ts'
import { FakeSysfs } from '../../support/handlers/guest/fake-sysfs.ts'

const MIB = 2n ** 20n

describe('resizeVolume', () => {
  let os: FakeOs
  let sysfs: FakeSysfs
  let disk: string

  beforeEach(async () => {
    os = new FakeOs()
    sysfs = await FakeSysfs.of(os, 1)
    disk = await mount('ext4')
    await setDisk(8n * MIB)
    os.volumes.blocks.set('/vol', (8n * MIB) / 4096n)
  })

  it('grows to the requested size in whole blocks when the disk is already larger', async () => {
    await setDisk(64n * MIB)
    await resize(16n * MIB + 4095n)
    expect(size()).toBe(16n * MIB)
    expect(os.uevents.listeners.size).toBe(0)
  })

  it('waits until the kernel reports the new size of the disk', async () => {
    const growing = resize(16n * MIB)
    await turn()
    expect(size()).toBe(8n * MIB)
    await setDisk(16n * MIB)
    sysfs.announce('change', '/devices/pci0000:00/0000:00:02.0/virtio4/block/vdb', 'block')
    await growing
    expect(size()).toBe(16n * MIB)
  })

  it('makes a SCSI disk read its size again', async () => {
    await os.files.put(`${disk}/device/rescan`, '')
    os.files.onWrite = async (path) => {
      if (path.endsWith('/rescan')) await setDisk(16n * MIB)
    }
    await resize(16n * MIB)
    expect(size()).toBe(16n * MIB)
  })

  it('does not change a volume that already has the size, rounded or not', async () => {
    await resize(8n * MIB)
    await resize(8n * MIB + 1n)
    expect(size()).toBe(8n * MIB)
  })

  it.each([
    ['the hot-plug timeout, when that is shorter', 500, 500],
    ['2 s, which leaves a caller’s 3 s for the answer', 3000, 2000],
    ['2 s, however long devices are waited for', 100_000, 2000],
  ])(
    'fails when the disk is too small after %s, and names both sizes',
    async (_limit, timeoutMs, afterMs) => {
      const growing = expect(resize(16n * MIB, { timeoutMs })).rejects
      await turn()
      os.clock.advance(afterMs)
      await growing.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringContaining('/dev/vdb with 16777216 bytes: no more than 8388608 bytes'),
      })
      expect(size()).toBe(8n * MIB)
      expect(os.uevents.listeners.size).toBe(0)
    },
  )

  it('stops waiting when its call is cancelled', async () => {
    const call = new AbortController()
    const growing = resize(16n * MIB, { signal: call.signal })
    await turn()
    call.abort(cancelled())
    await expect(growing).rejects.toMatchObject({ code: 'CANCELLED' })
    expect(size()).toBe(8n * MIB)
    expect(os.uevents.listeners.size).toBe(0)
  })

  it.each([0n, 1n, 8n * MIB - 1n])('refuses to shrink to %s bytes', async (bytes) => {
    await expect(resize(bytes)).rejects.toMatchObject({
      code: 'OUT_OF_RANGE',
      message: `size: ${bytes} bytes, want at least 8388608, the current size of /vol`,
    })
  })

  it('refuses a file system that cannot grow, naming it', async () => {
    await mount('vfat')
    await expect(resize(16n * MIB)).rejects.toMatchObject({
      code: 'UNIMPLEMENTED',
      message: 'volume_guest_path /vol: vfat cannot grow while mounted, want ext4 or xfs',
    })
  })

  it.each([
    ['a relative path', 'vol', 'INVALID_ARGUMENT', 'volume_guest_path "vol": not an absolute path'],
    ['no path', '', 'INVALID_ARGUMENT', 'volume_guest_path "": not an absolute path'],
    ['a folder in a volume', '/vol/a', 'INVALID_ARGUMENT', 'volume_guest_path /vol/a: not a mount point'],
    ['nothing', '/none', 'NOT_FOUND', 'volume_guest_path /none: does not exist'],
  ])('refuses %s', async (_what, path, code, message) => {
    await os.files.makeDirectories('/vol/a')
    await expect(resize(16n * MIB, { path })).rejects.toMatchObject({ code, message })
  })

  it('finds the last mount at a path that is not normalized', async () => {
    await setDisk(16n * MIB)
    await resize(16n * MIB, { path: '/x/..//vol/' })
    expect(size()).toBe(16n * MIB)
  })

  const size = () => (os.volumes.blocks.get('/vol') ?? 0n) * 4096n

  function resize(
    bytes: bigint,
    options: { readonly path?: string; readonly signal?: AbortSignal; readonly timeoutMs?: number } = {},
  ) {
    const { path = '/vol', signal = neverAborted, timeoutMs = 3000 } = options
    const dependencies = { ...os, ...hotplugOf(os), timeoutMs }
    return resizeVolume(dependencies, { volumeGuestPath: path, size: bytes }, signal)
  }

  async function setDisk(bytes: bigint): Promise<void> {
    await os.files.put(`${disk}/size`, `${bytes / 512n}\n`)
  }

  async function mount(type: string): Promise<string> {
    await os.mounts.mount({ source: '/dev/root', target: '/vol', type, flags: [], data: '' })
    const { major, minor } = os.mounts.entries.at(-1) ?? { major: 0, minor: 0 }
    const folder = `/sys/dev/block/${major}:${minor}`
    await os.files.put(`${folder}/uevent`, `MAJOR=${major}\nMINOR=${minor}\nDEVNAME=vdb\nDEVTYPE=disk\n`)
    return folder
  }
})
