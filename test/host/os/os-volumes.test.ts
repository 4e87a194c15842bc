import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, statfsSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import type { FileSystemGrowth, Volume } from '../../../src/os/devices/volumes/growth.ts'
import type { Volumes } from '../../../src/os/devices/volumes/volumes.ts'
import { linuxVolumes, parseSwaps } from '../../../src/os/devices/volumes/volumes.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const MIB = 2 ** 20

/** Each type with the command that creates it and an initial size in MiB. */
const TYPES = [
  ['ext4', ['mkfs.ext4', '-q'], 16],
  ['ext4', ['mkfs.ext4', '-q', '-O', '^has_journal', '-b', '1024'], 16],
  ['xfs', ['mkfs.xfs', '-q'], 300],
] as const

interface Implementation {
  readonly volumes: Volumes
  /** An XFS of 300 MiB on a disk of 600 MiB. */
  readonly mountXfs: () => Promise<Volume>
  readonly makeReadOnly: (volume: Volume) => void
  /** A file system of 256 blocks and 100 inodes with a folder, and a file of two blocks. */
  readonly mountTmpfs: () => Promise<string>
  /** A block device without a swap signature, and what makes one. */
  readonly disk: () => Promise<{ readonly path: string; readonly makeSwap: () => void }>
}

async function onLinux(): Promise<Implementation> {
  const folder = temporaryFolder()
  return {
    volumes: linuxVolumes(await realNative()),
    mountXfs: async () => {
      const volume = mountLoop(folder, 'mkfs.xfs', ['-q'], 300)
      growDisk(folder, volume.device, 600)
      return volume
    },
    makeReadOnly: ({ mountPoint }) => execFileSync('mount', ['-o', 'remount,ro', mountPoint]),
    mountTmpfs: async () => {
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,nr_inodes=100', 'tmpfs', folder])
      onTestFinished(() => void execFileSync('umount', [folder]))
      mkdirSync(join(folder, 'inside'))
      writeFileSync(join(folder, 'file'), Buffer.alloc(8192))
      return folder
    },
    disk: async () => {
      const path = attachDisk(folder, 1)
      const makeSwap = () => {
        execFileSync('mkswap', [path], { stdio: 'ignore' })
        onTestFinished(() => void execFileSync('swapoff', [path]))
      }
      return { path, makeSwap }
    },
  }
}

async function fake(): Promise<Implementation> {
  const { files, volumes } = new FakeOs()
  const blocks = BigInt(300 * MIB) / 4096n
  return {
    volumes,
    mountXfs: async () => {
      volumes.blocks.set('/vol', blocks)
      return { mountPoint: '/vol', device: '/dev/vdb' }
    },
    makeReadOnly: ({ mountPoint }) => volumes.readOnly.add(mountPoint),
    mountTmpfs: async () => {
      await files.makeDirectories('/vol/inside')
      const room = { blockBytes: 4096n, blocks: 256n, freeBlocks: 254n }
      volumes.usages.set('/vol', { ...room, inodes: 100n, freeInodes: 97n })
      return '/vol'
    },
    disk: async () => {
      await files.makeSpecial('/dev/vdc', { kind: 'block' })
      return { path: '/dev/vdc', makeSwap: () => volumes.swappable.add('/dev/vdc') }
    },
  }
}

describe.each([
  ['linuxVolumes', onLinux],
  ['FakeVolumes', fake],
])('%s', (_name, build) => {
  it('grows a file system', async () => {
    const { volumes, mountXfs } = await build()
    const growth = growthOf(volumes, 'xfs')
    const volume = await mountXfs()
    const { blockBytes, blocks } = await growth.size(volume)
    expect(blockBytes * blocks).toBe(BigInt(300 * MIB))
    await growth.grow(volume, blocks * 2n)
    expect(await growth.size(volume)).toEqual({ blockBytes, blocks: blocks * 2n })
  })

  it('grows no read-only mount', async () => {
    const { volumes, mountXfs, makeReadOnly } = await build()
    const volume = await mountXfs()
    makeReadOnly(volume)
    await expect(growthOf(volumes, 'xfs').grow(volume, 153_600n)).rejects.toMatchObject({
      ...{ code: 'INTERNAL', errno: 'EROFS', message: `grow xfs at ${volume.mountPoint}: EROFS` },
    })
  })

  it('grows no file system of other types, and has no size of what is no such file system', async () => {
    const { volumes, mountTmpfs, disk } = await build()
    const volume = { mountPoint: await mountTmpfs(), device: (await disk()).path }
    expect(volumes.growth('vfat')).toBeUndefined()
    await expect(growthOf(volumes, 'ext4').size(volume)).rejects.toMatchObject({ code: 'INTERNAL' })
    await expect(growthOf(volumes, 'xfs').size(volume)).rejects.toMatchObject({ errno: 'ENOTTY' })
  })

  it('reports the total and the free space of the file system that holds a path', async () => {
    const { volumes, mountTmpfs } = await build()
    const folder = await mountTmpfs()
    const usage = {
      ...{ blockBytes: 4096n, blocks: 256n, freeBlocks: 254n },
      ...{ inodes: 100n, freeInodes: 97n },
    }
    for (const path of [folder, join(folder, 'inside')]) expect(await volumes.usage(path)).toEqual(usage)
    const path = join(folder, 'none')
    await expect(volumes.usage(path)).rejects.toMatchObject({
      ...{ code: 'INTERNAL', errno: 'ENOENT', message: `statfs ${path}: ENOENT` },
    })
  })

  it('swaps on what is there, has a signature, and is not in use', async () => {
    const { volumes, disk } = await build()
    const { path, makeSwap } = await disk()
    const refusal = (path: string, errno: string) => ({
      ...{ code: 'INTERNAL', errno, message: `swapon ${path}: ${errno}` },
    })
    await expect(volumes.addSwap(`${path}-none`)).rejects.toMatchObject(refusal(`${path}-none`, 'ENOENT'))
    await expect(volumes.addSwap(path)).rejects.toMatchObject(refusal(path, 'EINVAL'))
    expect(await volumes.swaps()).not.toContain(path)
    makeSwap()
    await volumes.addSwap(path)
    await expect(volumes.addSwap(path)).rejects.toMatchObject(refusal(path, 'EBUSY'))
    expect(await volumes.swaps()).toContain(path)
  })
})

describe('linuxVolumes', () => {
  let volumes: Volumes
  let folder: string
  beforeEach(async () => {
    volumes = linuxVolumes(await realNative())
    folder = temporaryFolder()
  })

  it.each(TYPES)('reports how much of its disk %s covers (%j)', async (type, [make, ...options], mib) => {
    const volume = mountLoop(folder, make, options, mib)
    const { blockBytes, blocks } = await growthOf(volumes, type).size(volume)
    expect(blocks * blockBytes).toBe(BigInt(mib * MIB))
  })

  it.each(TYPES)('grows %s while it is mounted and in use (%j)', async (type, [make, ...options], mib) => {
    const volume = mountLoop(folder, make, options, mib)
    const growth = growthOf(volumes, type)
    writeFileSync(join(volume.mountPoint, 'kept'), 'kept')
    const { blockBytes, blocks } = await growth.size(volume)

    growDisk(folder, volume.device, 2 * mib)
    const growing = growth.grow(volume, blocks * 2n)
    if (type === 'ext4' && !mayUseResources()) {
      // The kernel refuses to grow ext4 without CAP_SYS_RESOURCE; test/vm/devices/hot-plug-resources.test.ts tests it.
      await expect(growing).rejects.toThrow(`grow ext4 at ${volume.mountPoint}: EPERM`)
      return
    }
    await growing
    expect(await growth.size(volume)).toEqual({ blockBytes, blocks: blocks * 2n })
    const { bsize, blocks: usable } = statfsSync(volume.mountPoint)
    expect(bsize * usable).toBeGreaterThan(1.5 * mib * MIB)
    expect(readFileSync(join(volume.mountPoint, 'kept'), 'utf8')).toBe('kept')
  })

  it('names a device that has no ext4 superblock', async () => {
    const device = attachDisk(folder, 1)
    await expect(growthOf(volumes, 'ext4').size({ mountPoint: folder, device })).rejects.toThrow(
      `${device}: no ext4 superblock`,
    )
  })
})

function growthOf(volumes: Volumes, type: string): FileSystemGrowth {
  const growth = volumes.growth(type)
  if (growth === undefined) throw new Error(`${type} does not grow`)
  return growth
}

function attachDisk(folder: string, mib: number): string {
  const file = join(folder, 'disk.img')
  writeFileSync(file, '')
  truncateSync(file, mib * MIB)
  const device = execFileSync('losetup', ['--find', '--show', file], { encoding: 'utf8' }).trim()
  onTestFinished(() => void execFileSync('losetup', ['--detach', device]))
  return device
}

function mountLoop(folder: string, make: string, options: readonly string[], mib: number): Volume {
  const device = attachDisk(folder, mib)
  execFileSync(make, [...options, device], { env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin' } })
  const mountPoint = join(folder, 'mounted')
  mkdirSync(mountPoint)
  execFileSync('mount', [device, mountPoint])
  onTestFinished(() => void execFileSync('umount', [mountPoint]))
  return { mountPoint, device }
}

function growDisk(folder: string, device: string, mib: number): void {
  truncateSync(join(folder, 'disk.img'), mib * MIB)
  execFileSync('losetup', ['--set-capacity', device])
}

function mayUseResources(): boolean {
  const effective = /^CapEff:\t([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]
  return ((BigInt(`0x${effective}`) >> 24n) & 1n) === 1n
}

describe('parseSwaps', () => {
  it('reads the paths, also with spaces', () => {
    const text =
      'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n' +
      '/dev/vdb                                partition\t65532\t\t0\t\t-2\n' +
      '/run/a\\040file                          file\t\t1020\t\t0\t\t-3\n'
    expect(parseSwaps(text)).toEqual(['/dev/vdb', '/run/a file'])
  })

  it('reads an empty list', () => {
    expect(parseSwaps('Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n')).toEqual([])
  })
})
