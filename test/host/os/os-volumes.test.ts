import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, statfsSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { FileSystemGrowth } from '../../../src/os/devices/volumes/growth.ts'
import type { Volumes } from '../../../src/os/devices/volumes/volumes.ts'
import { linuxVolumes, parseSwaps } from '../../../src/os/devices/volumes/volumes.ts'
import { realNative } from '../../support/os/real-native.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const MIB = 2 ** 20

/** Each type with the command that creates it and an initial size in MiB. */
const TYPES = [
  ['ext4', ['mkfs.ext4', '-q'], 16],
  ['ext4', ['mkfs.ext4', '-q', '-O', '^has_journal', '-b', '1024'], 16],
  ['xfs', ['mkfs.xfs', '-q'], 300],
] as const

describe('linuxVolumes', () => {
  let volumes: Volumes
  let folder: string
  let cleanUps: (() => void)[]

  beforeEach(async () => {
    volumes = linuxVolumes(await realNative())
    folder = temporaryFolder()
    cleanUps = []
  })

  afterEach(() => {
    for (const cleanUp of cleanUps.reverse()) cleanUp()
  })

  it.each(TYPES)('reports how much of its disk %s covers (%j)', async (type, [make, ...options], mib) => {
    const volume = mountLoop(make, options, mib)
    const { blockBytes, blocks } = await growthOf(type).size(volume)
    expect(blocks * blockBytes).toBe(BigInt(mib * MIB))
  })

  it.each(TYPES)('grows %s while it is mounted and in use (%j)', async (type, [make, ...options], mib) => {
    const volume = mountLoop(make, options, mib)
    const growth = growthOf(type)
    writeFileSync(join(volume.mountPoint, 'kept'), 'kept')
    const { blockBytes, blocks } = await growth.size(volume)

    growDisk(volume.device, 2 * mib)
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

  it('reports the kernel’s error for a read-only mount', async () => {
    const volume = mountLoop('mkfs.xfs', ['-q'], 300)
    growDisk(volume.device, 600)
    execFileSync('mount', ['-o', 'remount,ro', volume.mountPoint])
    await expect(growthOf('xfs').grow(volume, 153_600n)).rejects.toMatchObject({
      message: `grow xfs at ${volume.mountPoint}: EROFS`,
      errno: 'EROFS',
    })
  })

  it('refuses a file system that is not ext4', async () => {
    writeFileSync(join(folder, 'zeros'), Buffer.alloc(4096))
    const volume = { mountPoint: folder, device: join(folder, 'zeros') }
    await expect(growthOf('ext4').size(volume)).rejects.toThrow('no ext4 superblock')
    await expect(growthOf('xfs').size(volume)).rejects.toMatchObject({ errno: 'ENOTTY' })
  })

  it('reports the total and the free space', async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,nr_inodes=100', 'tmpfs', folder])
    cleanUps.push(() => execFileSync('umount', [folder]))
    writeFileSync(join(folder, 'file'), Buffer.alloc(8192))
    await expect(volumes.usage(folder)).resolves.toEqual({
      ...{ blockBytes: 4096n, blocks: 256n, freeBlocks: 254n },
      ...{ inodes: 100n, freeInodes: 98n },
    })
    await expect(volumes.usage(join(folder, 'none'))).rejects.toMatchObject({ errno: 'ENOENT' })
  })

  it('refuses to swap on a file without a swap signature', async () => {
    writeFileSync(join(folder, 'file'), Buffer.alloc(65_536))
    await expect(volumes.addSwap(join(folder, 'file'))).rejects.toMatchObject({
      message: `swapon ${folder}/file: EINVAL`,
      errno: 'EINVAL',
    })
    await expect(volumes.addSwap(join(folder, 'none'))).rejects.toMatchObject({ errno: 'ENOENT' })
    expect(await volumes.swaps()).not.toContain(join(folder, 'file'))
  })

  function growthOf(type: string): FileSystemGrowth {
    const growth = volumes.growth(type)
    if (growth === undefined) throw new Error(`${type} does not grow`)
    return growth
  }

  function mountLoop(make: string, options: readonly string[], mib: number) {
    const file = join(folder, 'disk.img')
    writeFileSync(file, '')
    truncateSync(file, mib * MIB)
    execFileSync(make, [...options, file], { env: { PATH: '/usr/sbin:/sbin:/usr/bin:/bin' } })
    const device = execFileSync('losetup', ['--find', '--show', file], { encoding: 'utf8' }).trim()
    cleanUps.push(() => execFileSync('losetup', ['--detach', device]))
    const mountPoint = join(folder, 'mounted')
    mkdirSync(mountPoint)
    execFileSync('mount', [device, mountPoint])
    cleanUps.push(() => execFileSync('umount', [mountPoint]))
    return { mountPoint, device }
  }

  function growDisk(device: string, mib: number): void {
    truncateSync(join(folder, 'disk.img'), mib * MIB)
    execFileSync('losetup', ['--set-capacity', device])
  }
})

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
