import { beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import { erofsMultiLayer } from '../../../../src/handlers/storage/drivers/image/mount-image.ts'
import { createStorageHandlers, type StorageHandlers } from '../../../../src/handlers/storage/storage.ts'
import { storageDriverContract } from '../../../support/contracts/storage-driver.ts'
import { FakeOs } from '../../../support/fakes/fake-os.ts'
import { dependenciesOf, ROOT, storageOf } from '../../../support/handlers/storage/storage-builder.ts'

const IMAGE = `${ROOT}/c1/rootfs`
const HASH_OFFSET = 8192

storageDriverContract('erofs.multi-layer', {
  driver: erofsMultiLayer,
  storage: layer({ driver: 'erofs.multi-layer' }),
  prepare: plug,
})

describe('mountImage', () => {
  let os: FakeOs
  let handlers: StorageHandlers

  beforeEach(async () => {
    os = new FakeOs()
    await plug(os)
    os.tools.script(() => ({}))
    handlers = createStorageHandlers({ ...dependenciesOf(os), log: silentLogger() })
  })

  it('mounts an overlay with the first layer on top and writes to the upper layer', async () => {
    const attached = await attach(
      lower('/dev/vdb'),
      upper(),
      lower('/dev/vdc', { options: ['noatime', 'rw'] }),
    )
    expect(attached).toEqual({ mountPoints: [IMAGE] })
    const [folder] = await layerFolders()
    expect(os.mounts.requests).toEqual([
      { source: '/dev/vdb', target: `${folder}/0`, type: 'erofs', flags: ['ro'], data: '' },
      { source: '/dev/vdc', target: `${folder}/1`, type: 'erofs', flags: ['noatime', 'ro'], data: '' },
      { source: '/dev/vdd', target: `${folder}/rw`, type: 'ext4', flags: [], data: '' },
      {
        source: 'overlay',
        target: IMAGE,
        type: 'overlay',
        flags: [],
        data: `lowerdir=${folder}/0:${folder}/1:${folder}/empty,upperdir=${folder}/rw/upper,workdir=${folder}/rw/work`,
      },
    ])
  })

  it('is read-only without an upper layer', async () => {
    await attach(lower('/dev/vdb'))
    expect(os.mounts.requests.at(-1)).toMatchObject({ target: IMAGE, flags: ['ro'] })
    expect(os.mounts.requests.at(-1)?.data).toMatch(/^lowerdir=\S+\/0:\S+\/empty$/)
  })

  it('unmounts the overlay and its layers with the last reference', async () => {
    const [first, second] = [
      await attach(lower('/dev/vdb'), upper()),
      await attach(lower('/dev/vdb'), upper()),
    ]
    expect(os.mounts.requests).toHaveLength(3)
    await handlers.release(first)
    expect(os.mounts.isMountPoint(IMAGE)).toBe(true)
    // FakeOs keeps the upper disk's folders visible after the unmount.
    for (const name of ['upper', 'work']) await os.files.removeTree(`${(await layerFolders())[0]}/rw/${name}`)
    await handlers.release(second)
    await expectNothing()
  })

  it('makes the file system of the upper layer when its disk is new', async () => {
    await attach(lower('/dev/vdb'), upper({ driverOptions: ['create_filesystem'] }))
    expect(os.tools.calls.map(({ argv }) => argv.at(-1))).toEqual(['/dev/vdd'])
  })

  it('creates the requested folders in the upper layer', async () => {
    const mkdir = (text: string) => `X-kata.mkdir.path=${text}`
    const options = [mkdir('{{ mount 0 }}/upper:0700:5:6'), mkdir('{{ mount 0 }}/a/b'), mkdir('/c')]
    await attach(lower('/dev/vdb'), upper({ options }))
    const [folder] = await layerFolders()
    expect(await os.files.lstat(`${folder}/rw/upper`)).toMatchObject({ mode: 0o700, uid: 5, gid: 6 })
    expect(await os.files.lstat(`${folder}/rw/a/b`)).toMatchObject({ kind: 'directory', mode: 0o755 })
    expect(await os.files.lstat(`${folder}/rw/c`)).toMatchObject({ kind: 'directory' })
  })

  it('follows no symbolic link on the upper disk', async () => {
    os.mounts.mount = async ({ target, ...request }) => {
      os.mounts.entries.push({
        ...request,
        mountPoint: target,
        id: 99,
        parentId: 1,
        options: '',
        isReadOnly: false,
        major: 0,
        minor: 1,
      })
      if (target.endsWith('/rw')) await os.files.symlink('/etc', `${target}/upper`)
    }
    await expect(attach(lower('/dev/vdb'), upper())).rejects.toThrow('/rw/upper is a symbolic link')
  })

  it('changes the group of the image to that of its first layer', async () => {
    const fsGroup = { groupId: 1000, groupChangePolicy: 0 } as const
    await attach({ ...lower('/dev/vdb'), fsGroup }, upper())
    expect(await os.files.lstat(IMAGE)).toMatchObject({ gid: 1000 })
  })

  it('mounts layers from partitions of a disk', async () => {
    const part = (number: number) => ['X-kata.gpt-partitioned=true', `X-kata.partition-number=${number}`]
    await attach(lower('/dev/vdb', { options: part(1) }), lower('/dev/vdb', { options: part(2) }))
    expect(os.mounts.requests.map(({ source }) => source)).toEqual(['/dev/vdb1', '/dev/vdb2', 'overlay'])
  })

  it('keeps images and other storages of a request apart', async () => {
    const other = `${ROOT}/c2/rootfs`
    const attached = await attach(
      lower('/dev/vdb'),
      storageOf(),
      { ...lower('/dev/vdb'), mountPoint: `${other}/` },
      lower('/dev/vdc'),
      { ...lower('/dev/vdc'), mountPoint: other },
    )
    expect(attached.mountPoints).toEqual([IMAGE, storageOf().mountPoint, other])
    const overlays = os.mounts.requests.filter(({ type }) => type === 'overlay')
    expect(overlays.map(({ data }) => data.split(':').length)).toEqual([3, 3])
    expect(await layerFolders()).toHaveLength(2)
  })

  describe('with dm-verity', () => {
    it('mounts the dm-verity device, and unmaps it with the image', async () => {
      const attached = await attach(lower('/dev/vdb'), lower('/dev/vdc', { options: verity() }))
      const [[name, target] = []] = [...os.blockDevices.mapped]
      expect(name).toMatch(/^microvm-layers-[0-9a-f]{8}-1$/)
      expect(target).toMatchObject({ type: 'verity', sectors: 16n })
      expect(target?.parameters).toBe(`1 /dev/vdc /dev/vdc 4096 4096 2 3 sha256 ${'ab'.repeat(32)} -`)
      expect(os.mounts.requests[1]).toMatchObject({ source: '/dev/dm-0', flags: ['ro'] })
      await handlers.release(attached)
      await expectNothing()
    })

    it('loads the kernel module unless it is present', async () => {
      await attach(lower('/dev/vdc', { options: verity() }))
      expect(os.tools.calls.map(({ argv }) => argv)).toEqual([['/sbin/modprobe', '--', 'dm-verity']])
      await os.files.makeDirectories('/sys/module/dm_verity')
      await attach({ ...lower('/dev/vdc', { options: verity() }), mountPoint: `${ROOT}/c2/rootfs` })
      expect(os.tools.calls).toHaveLength(1)
    })

    it('reports a kernel without dm-verity', async () => {
      os.tools.script(() => ({ exitCode: 1, stderr: 'not in modules.dep' }))
      const attaching = expect(attach(lower('/dev/vdc', { options: verity() }))).rejects
      await attaching.toMatchObject({ code: 'UNIMPLEMENTED' })
      await attaching.toThrow('option X-kata.dmverity-enabled: the guest kernel has no dm-verity')
      await expectNothing()
    })

    it('explains an unreadable disk', async () => {
      os.mounts.failWith = (_, target) => (target.endsWith('/0') ? 'EIO' : undefined)
      await expect(attach(lower('/dev/vdc', { options: verity() }))).rejects.toThrow(
        /^layer \/dev\/vdc: mount .*\/0: EIO: its data does not match the root hash$/,
      )
      await expectNothing()
    })

    it('undoes all steps when the device mapper refuses', async () => {
      os.blockDevices.failWith = () => 'EINVAL'
      await expect(attach(lower('/dev/vdb'), lower('/dev/vdc', { options: verity() }))).rejects.toThrow(
        /device mapper: load microvm-layers-[0-9a-f]{8}-1: EINVAL/,
      )
      await expectNothing()
    })
  })

  it.each(['/0', '/1', '/rw', IMAGE])('undoes all steps when the mount on %s fails', async (place) => {
    os.mounts.failWith = (call, target) => (call === 'mount' && target.endsWith(place) ? 'EINVAL' : undefined)
    const image = [lower('/dev/vdb', { options: verity() }), lower('/dev/vdc'), upper()]
    await os.blockDevices.contents.set('/dev/vdb', verityDisk())
    // Unmounting would hide the folders on the disk, which FakeOs does not simulate.
    hideUpperOnUnmount()
    await expect(attach(...image)).rejects.toThrow('EINVAL')
    await expectNothing()
    os.mounts.failWith = () => undefined
    await expect(attach(...image)).resolves.toEqual({ mountPoints: [IMAGE] })
  })

  it('undoes all steps when a disk does not appear', async () => {
    await expect(attach(lower('/dev/vdb'), lower('/dev/vdz'))).rejects.toThrow('/dev/vdz')
    await expectNothing()
  })

  it.each([
    ['no lower layer', [upper()], 'no lower layer'],
    ['two upper layers', [lower('/dev/vdb'), upper(), upper()], '/dev/vdd: a second upper layer'],
    [
      'a layer of both kinds',
      [lower('/dev/vdb', { options: ['X-kata.overlay-upper'] })],
      'marked as both upper and lower',
    ],
    ['another file system', [{ ...lower('/dev/vdb'), fstype: 'xfs' }], 'fstype "xfs", want ext4'],
    [
      'an upper erofs',
      [lower('/dev/vdb'), upper({ fstype: 'erofs' })],
      '/dev/vdd: fstype "erofs", want ext4',
    ],
    ['an empty source', [lower('')], 'source is empty'],
    [
      'a driver without disks',
      [{ ...lower('/dev/vdb'), driver: 'local' }],
      'storage driver local has no disks',
    ],
    [
      'an unknown driver',
      [lower('/dev/vdb'), { ...lower('/dev/vdb'), driver: 'tape' }],
      'Failed to find the storage handler tape',
    ],
    [
      'a new file system in a lower layer',
      [lower('/dev/vdb', { driverOptions: ['create_filesystem'] })],
      'fstype "erofs", want ext4',
    ],
    [
      'a partition without a partition table',
      [option('X-kata.partition-number=1')],
      'requires X-kata.gpt-partitioned=true',
    ],
    ['a table without partition', [option('X-kata.gpt-partitioned=true')], 'a number from 1 to 128'],
    [
      'partition 0',
      [option('X-kata.gpt-partitioned=true', 'X-kata.partition-number=0')],
      'a number from 1 to 128',
    ],
    [
      'partition 129',
      [option('X-kata.gpt-partitioned=true', 'X-kata.partition-number=129')],
      'a number from 1 to 128',
    ],
    [
      'a switch of another form',
      [option('X-kata.gpt-partitioned=yes')],
      'gpt-partitioned: want true or false',
    ],
    ['a word with a value', [option('X-kata.overlay-lower=1')], 'overlay-lower: takes no value'],
    [
      'two root hashes',
      [option(...verity(), 'X-kata.dmverity.roothash=00')],
      'dmverity.roothash: given with two values',
    ],
    [
      'an invalid hash',
      [option(...verity({ roothash: 'xyz' }))],
      'dmverity.roothash: "xyz", want hexadecimal',
    ],
    [
      'an offset between sectors',
      [option(...verity({ hashoffset: '100' }))],
      '"100", want a multiple of 512 bytes',
    ],
    [
      'an invalid salt',
      [option(...verity(), 'X-kata.dmverity.salt=x')],
      'dmverity.salt: "x", want hexadecimal',
    ],
    [
      'a hash that nobody looks at',
      [option('X-kata.dmverity.roothash=ab')],
      'require X-kata.dmverity-enabled=true',
    ],
    ['verity above', [lower('/dev/vdb'), upper({ options: verity() })], 'cannot have dm-verity'],
    ['folders below', [option('X-kata.mkdir.path=/a')], 'X-kata.mkdir.path is only for the upper layer'],
    ['folders in a lower layer', mkdir('{{ mount 1 }}/a'), 'names a read-only layer'],
    ['folders outside the layer', mkdir('{{ mount 0 }}/../x'), 'is not a normalised path'],
    ['folders with a mode of words', mkdir('/x:rwx'), 'want path:mode:uid:gid'],
    ['folders with a user but no group', mkdir('/x:0755:0'), 'want path:mode:uid:gid'],
    ['loop', [option('loop')], 'mount option loop: not supported'],
  ])('refuses %s, and mounts nothing', async (_, layers, message) => {
    const attaching = expect(attach(...layers)).rejects
    await attaching.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await attaching.toThrow(message)
    expect(os.mounts.requests).toEqual([])
    await expectNothing()
  })

  it('refuses a layer that should be encrypted', async () => {
    const driverOptions = ['encryption_key=ephemeral', 'create_filesystem']
    const attaching = expect(attach(lower('/dev/vdb'), upper({ driverOptions }))).rejects
    await attaching.toMatchObject({ code: 'UNIMPLEMENTED' })
    await attaching.toThrow('encryption_key is not supported')
    await expectNothing()
  })

  it.each(['X-kata.dmverity.no-superblock=true', 'X-kata.something'])(
    'says that it does not know %s',
    async (word) => {
      const attaching = expect(attach(option(word))).rejects
      await attaching.toMatchObject({ code: 'UNIMPLEMENTED' })
      await attaching.toThrow(`option ${word.replace(/=.*/, '')}: not supported by this agent`)
      await expectNothing()
    },
  )

  function attach(...storages: Storage[]) {
    return handlers.attach(storages, 'c1', neverAborted)
  }

  async function layerFolders(): Promise<string[]> {
    return (await os.files.list(ROOT))
      .filter((name) => name.startsWith('.layers'))
      .map((name) => `${ROOT}/${name}`)
  }

  function hideUpperOnUnmount() {
    const unmount = os.mounts.unmount.bind(os.mounts)
    os.mounts.unmount = async (target) => {
      await unmount(target)
      for (const name of ['upper', 'work']) await os.files.removeTree(`${target}/${name}`)
    }
  }

  async function expectNothing() {
    expect(os.mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    expect([...os.blockDevices.mapped]).toEqual([])
    expect(await layerFolders()).toEqual([])
    expect(os.files.has(IMAGE)).toBe(false)
    expect(os.uevents.listeners.size).toBe(0)
  }
})

function layer(changes: Partial<Storage>): Storage {
  const marks = ['X-kata.multi-layer=true', ...(changes.options ?? [])]
  const plain = { driver: 'blk', source: '/dev/vdb', fstype: 'erofs', mountPoint: IMAGE }
  return storageOf({ ...plain, ...changes, options: marks })
}

function lower(source: string, changes: Partial<Storage> = {}): Storage {
  return layer({ source, ...changes, options: ['X-kata.overlay-lower', ...(changes.options ?? [])] })
}

function upper(changes: Partial<Storage> = {}): Storage {
  const options = ['X-kata.overlay-upper', ...(changes.options ?? [])]
  return layer({ source: '/dev/vdd', fstype: 'ext4', ...changes, options })
}

function option(...options: string[]): Storage {
  return lower('/dev/vdb', { options })
}

function mkdir(value: string): Storage[] {
  return [lower('/dev/vdb'), upper({ options: [`X-kata.mkdir.path=${value}`] })]
}

function verity({ roothash = 'ab'.repeat(32), hashoffset = String(HASH_OFFSET) } = {}): string[] {
  const values = [`X-kata.dmverity.roothash=${roothash}`, `X-kata.dmverity.hashoffset=${hashoffset}`]
  return ['X-kata.dmverity-enabled=true', ...values]
}

function verityDisk(): Buffer {
  const disk = Buffer.alloc(HASH_OFFSET + 4096)
  const superblock = disk.subarray(HASH_OFFSET)
  superblock.write('verity\0\0', 'latin1')
  superblock.writeUInt32LE(1, 8)
  superblock.writeUInt32LE(1, 12)
  superblock.write('sha256', 32)
  superblock.writeUInt32LE(4096, 64)
  superblock.writeUInt32LE(4096, 68)
  superblock.writeBigUInt64LE(2n, 72)
  return disk
}

async function plug(os: FakeOs): Promise<void> {
  await os.files.makeDirectories(ROOT)
  for (const [index, name] of ['vdb', 'vdc', 'vdd'].entries()) {
    await os.files.makeSpecial(`/dev/${name}`, { kind: 'block', major: 254, minor: index * 16 })
  }
  for (const number of [1, 2]) {
    const place = `/sys/class/block/vdb/vdb${number}`
    await os.files.put(`${place}/partition`, `${number}\n`)
    await os.files.put(`${place}/dev`, `254:${number}\n`)
    await os.files.makeSpecial(`/dev/vdb${number}`, { kind: 'block', major: 254, minor: number })
  }
  os.blockDevices.contents.set('/dev/vdc', verityDisk())
}
