import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import { blk } from '../../../../src/handlers/storage/drivers/block.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const DEVICE = '/sys/devices/pci0000:00/0000:00:02.0/0000:01:03.0'
const byNode = disk({ source: '/dev/vdb' })
const byPciPath = disk({ source: '02/03' })

storageDriverContract('blk by device node', { driver: blk, storage: byNode, prepare: plugDisk })
storageDriverContract('blk by PCI path', { driver: blk, storage: byPciPath, prepare: plugDisk })

describe('blk', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await plugDisk(os)
  })

  it.each([
    ['a device node', byNode],
    ['a PCI path', byPciPath],
  ])('mounts the disk that %s names', async (_, storage) => {
    await expect(attach(storage)).resolves.toMatchObject({
      mountPoint: storage.mountPoint,
      kind: 'mount',
      keep: false,
    })
    expect(os.mounts.requests).toEqual([
      { source: '/dev/vdb', target: storage.mountPoint, type: 'ext4', flags: ['ro'], data: '' },
    ])
  })

  it.each([
    ['a device node', '/dev/vdb'],
    ['a PCI path', '02/03'],
  ])('binds the node itself over a file, for %s', async (_, source) => {
    const storage = disk({ source, fstype: 'bind', options: ['bind'] })
    await attach(storage)
    expect((await os.files.lstat(storage.mountPoint))?.kind).toBe('file')
    expect(os.mounts.requests).toMatchObject([{ source: '/dev/vdb', flags: ['bind'] }])
  })

  it('waits for a disk that appears later', async () => {
    await os.files.removeTree(`${DEVICE}/virtio4`)
    const attaching = attach(byPciPath)
    // FakeOs answers within one turn of the event loop, so the first probe has ended.
    await turn()
    expect(os.uevents.listeners.size).toBe(1)
    await plugDisk(os)
    const path = DEVICE.replace('/sys', '')
    os.uevents.send(`add@${path}/virtio4/block/vdb\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=vdb\0`)
    await expect(attaching).resolves.toMatchObject({ kind: 'mount' })
  })

  it('refuses a node that is not a disk or does not exist', async () => {
    await os.files.makeSpecial('/dev/null', { kind: 'character', major: 1, minor: 3 })
    await expect(attach(disk({ source: '/dev/null' }))).rejects.toThrow(
      '/dev/null: is a character, want a block device',
    )
    await expect(attach(disk({ source: '/dev/vdz' }))).rejects.toThrow(
      '/dev/vdz: no such device, want a block device',
    )
  })

  it('refuses a source that is neither a node nor a PCI path', async () => {
    await expect(attach(disk({ source: 'vdb' }))).rejects.toThrow('PCI path "vdb"')
  })

  it('changes the group of the storage to the requested one', async () => {
    const storage = disk({ options: [], fsGroup: { groupId: 1000, groupChangePolicy: 0 } })
    await attach(storage)
    expect(await os.files.lstat(storage.mountPoint)).toMatchObject({ gid: 1000, mode: 0o2775 })
  })

  describe('with create_filesystem', () => {
    it('makes an ext4 file system without journal first', async () => {
      os.tools.script(() => ({}))
      await attach(disk({ driverOptions: ['create_filesystem'] }))
      expect(os.tools.calls.map(({ argv }) => argv.join(' '))).toEqual([
        '/sbin/mkfs.ext4 -O ^has_journal -m 0 -i 163840 -I 128 -F /dev/vdb',
      ])
    })

    it('mounts nothing when that fails', async () => {
      os.tools.script(() => ({ exitCode: 1, stderr: 'no space\n' }))
      await expect(attach(disk({ driverOptions: ['create_filesystem'] }))).rejects.toThrow(
        'mkfs.ext4 /dev/vdb: exit code 1: no space',
      )
      expect(os.mounts.requests).toEqual([])
    })

    it('refuses any other file system and leaves the disk alone', async () => {
      const storage = disk({ driverOptions: ['create_filesystem'], fstype: 'xfs' })
      await expect(attach(storage)).rejects.toThrow('create_filesystem: fstype "xfs", want ext4')
      expect(os.tools.calls).toEqual([])
    })
  })

  function attach(storage: Storage) {
    return blk.attach(storage, dependenciesOf(os), neverAborted)
  }
})

function disk(changes: Partial<Storage>): Storage {
  return storageOf({
    driver: 'blk',
    source: '/dev/vdb',
    fstype: 'ext4',
    options: ['ro'],
    mountPoint: `${ROOT}/sandbox/storage/ZGlzaw==`,
    ...changes,
  })
}

async function plugDisk(os: FakeOs): Promise<void> {
  await os.files.makeDirectories('/sys/devices/pci0000:00/0000:00:02.0/pci_bus/0000:01')
  await os.files.put(`${DEVICE}/virtio4/block/vdb/dev`, '254:16\n')
  if ((await os.files.stat('/dev/vdb')) !== undefined) return
  await os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
}
