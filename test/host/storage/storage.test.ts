import { execFileSync } from 'node:child_process'
import {
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statfsSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Storage } from '../../../src/gen/agent.ts'
import { createStorageHandlers, type StorageHandlers } from '../../../src/handlers/storage/storage.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { eventLog } from '../../support/fakes/event-log.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'
import { hotplugOf } from '../../support/handlers/device/device-dependencies.ts'
import { storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { noLongOverlays } from '../../support/os/no-long-overlays.ts'
import { realOs } from '../../support/os/real-os.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('storages on a real kernel', () => {
  let root: string
  let handlers: StorageHandlers
  let cleanUps: (() => void)[]

  beforeEach(async () => {
    root = temporaryFolder()
    cleanUps = []
    const os = await realOs()
    // The timeout is too short for a rescan of this machine's buses.
    const hotplug = { ...hotplugOf(os), timeoutMs: 100 }
    const roots = { allowedRoots: [root], bundlesRoot: root, state: new StateStore(new MemoryStateFiles()) }
    handlers = createStorageHandlers({ os, events: eventLog(), log: silentLogger(), ...roots, hotplug })
  })

  afterEach(() => {
    for (const mountPoint of mountsBelow(root).reverse()) execFileSync('umount', [mountPoint])
    for (const cleanUp of cleanUps.reverse()) cleanUp()
  })

  it('limits memory to the size that was asked for', async () => {
    const mountPoint = join(root, 'shm')
    await attach({
      mountPoint,
      source: 'shm',
      options: ['size=1048576', 'mode=1770', 'noexec', 'fsgid=1234'],
    })
    const { blocks, bsize } = statfsSync(mountPoint)
    expect(blocks * bsize).toBe(1_048_576)
    expect(() => writeFileSync(join(mountPoint, 'big'), Buffer.alloc(2_000_000))).toThrow('ENOSPC')
    expect(statusOf(mountPoint)).toEqual({ mode: 0o3770, gid: 1234 })
  })

  it('makes a directory with its mode and group', async () => {
    const mountPoint = join(root, 'local/data')
    await attach({ driver: 'local', source: 'local', mountPoint, options: ['mode=0770', 'fsgid=1234'] })
    expect(statusOf(mountPoint)).toEqual({ mode: 0o2770, gid: 1234 })
    expect(mountsBelow(root)).toEqual([])
  })

  it('makes a file system on a disk, mounts it, and unmounts it with its last user', async () => {
    const mountPoint = join(root, 'disk')
    const storage = { ...diskStorage(mountPoint), driverOptions: ['create_filesystem'] }
    const first = await attach(storage)
    const second = await attach(storage)
    expect(mountsBelow(root)).toEqual([mountPoint])
    writeFileSync(join(mountPoint, 'file'), 'kept')
    await handlers.release(first)
    expect(mountsBelow(root)).toEqual([mountPoint])
    await handlers.release(second)
    expect(mountsBelow(root)).toEqual([])
    expect(() => lstatSync(mountPoint)).toThrow('ENOENT')
  })

  it('gives a volume to its group without touching what its links point at', async () => {
    const outside = join(root, 'outside')
    writeFileSync(outside, '', { mode: 0o600 })
    const mountPoint = join(root, 'disk')
    const disk = diskStorage(mountPoint)
    const first = await attach({ ...disk, driverOptions: ['create_filesystem'] })
    writeFileSync(join(mountPoint, 'file'), '', { mode: 0o600 })
    chownSync(join(mountPoint, 'file'), 42, 42)
    symlinkSync(outside, join(mountPoint, 'link'))
    await handlers.release(first)

    await attach({ ...disk, fsGroup: { groupId: 1234, groupChangePolicy: 0 } })
    expect(statusOf(join(mountPoint, 'file'))).toEqual({ mode: 0o660, gid: 1234 })
    expect(statusOf(mountPoint)).toMatchObject({ gid: 1234 })
    expect(statusOf(outside)).toEqual({ mode: 0o600, gid: process.getgid?.() })
  })

  it('mounts a disk read-only although it has a group', async () => {
    const mountPoint = join(root, 'disk')
    const disk = diskStorage(mountPoint)
    await handlers.release(await attach({ ...disk, driverOptions: ['create_filesystem'] }))
    await attach({ ...disk, options: ['ro'], fsGroup: { groupId: 1234, groupChangePolicy: 0 } })
    expect(() => writeFileSync(join(mountPoint, 'file'), '')).toThrow('EROFS')
  })

  it('releases a recursive bind with the mounts that came along', async () => {
    const source = join(root, 'source')
    await attach({ mountPoint: join(source, 'sub') })
    await attach({ mountPoint: join(source, 'sub/deep') })
    const mountPoint = join(root, 'bound')
    const bind = { driver: 'overlayfs', source, fstype: 'bind', options: ['rbind', 'ro'], mountPoint }
    const attached = await attach(bind)
    expect(mountsBelow(mountPoint)).toEqual([join(mountPoint, 'sub'), join(mountPoint, 'sub/deep')])
    await handlers.release(attached)
    expect(mountsBelow(root)).toEqual([join(source, 'sub'), join(source, 'sub/deep')])
  })

  it('undoes everything when a later storage fails', async () => {
    const attaching = handlers.attach(
      [storageOf({ mountPoint: join(root, 'shm') }), diskStorage(join(root, 'empty-disk'))],
      'c1',
      neverAborted,
    )
    await expect(attaching).rejects.toThrow(`mount ${join(root, 'empty-disk')}: EINVAL`)
    expect(mountsBelow(root)).toEqual([])
    expect(() => lstatSync(join(root, 'shm'))).toThrow('ENOENT')
    expect(() => lstatSync(join(root, 'empty-disk'))).toThrow('ENOENT')
  })

  it('lays a new layer over two of erofs, keeps what is written on its disk, and removes all of it', async () => {
    const mountPoint = join(root, 'image')
    const mark = (kind: string) => ['X-kata.multi-layer=true', `X-kata.overlay-${kind}`]
    const lower = (files: Readonly<Record<string, string>>) => {
      const tree = mkdtempSync(join(root, 'tree-'))
      for (const [name, content] of Object.entries(files)) writeFileSync(join(tree, name), content)
      execFileSync('mkfs.erofs', [`${tree}.erofs`, tree], { stdio: 'ignore' })
      return loopStorage(`${tree}.erofs`, { fstype: 'erofs', mountPoint, options: mark('lower') })
    }
    const disk = diskStorage(mountPoint)
    const driverOptions = ['create_filesystem']
    const upper = {
      ...disk,
      driverOptions,
      options: [...mark('upper'), 'X-kata.mkdir.path={{ mount 0 }}/upper:0750'],
    }
    const lowers = [lower({ both: 'top', top: 'top' }), lower({ both: 'base', base: 'base' })]

    const attached = await handlers.attach([upper, ...lowers], 'c1', neverAborted)
    expect(['both', 'top', 'base'].map((name) => readFileSync(join(mountPoint, name), 'utf8'))).toEqual([
      'top',
      'top',
      'base',
    ])
    expect(statusOf(mountPoint).mode).toBe(0o750)
    writeFileSync(join(mountPoint, 'both'), 'written')
    await handlers.release(attached)
    expect(mountsBelow(root)).toEqual([])
    expect(readdirSync(root).filter((name) => name.startsWith('.layers') || name === 'image')).toEqual([])

    await handlers.attach([{ ...upper, driverOptions: [] }, ...lowers], 'c1', neverAborted)
    expect(readFileSync(join(mountPoint, 'both'), 'utf8')).toBe('written')
  })

  it.skipIf(noLongOverlays)(
    'lays 500 layers over each other, whose paths fill more than a page',
    async () => {
      const layers = Array.from({ length: 500 }, (_, index) =>
        join(root, `a layer: ${index}, long`.padEnd(60, 'x')),
      )
      for (const layer of layers) mkdirSync(layer)
      for (const [name, index] of [
        ['own', 499],
        ['same', 499],
        ['same', 0],
      ] as const)
        writeFileSync(join(layers[index] ?? '', name), `${index}`)
      const lowerdir = layers.map((layer) => layer.replaceAll(/[:,]/g, '\\$&')).join(':')
      const mountPoint = join(root, 'layered')
      const options = [`lowerdir=${lowerdir}`, 'nosuid', 'io.katacontainers.fs-opt.overlay-rw']
      const attached = await attach({
        driver: 'overlayfs',
        source: 'overlay',
        fstype: 'overlay',
        options,
        mountPoint,
      })
      const table = readFileSync('/proc/self/mountinfo', 'utf8').split('\n')
      expect(Math.max(...table.map(({ length }) => length))).toBeLessThan(64 * 1024)
      expect(['same', 'own'].map((name) => readFileSync(join(mountPoint, name), 'utf8'))).toEqual([
        '0',
        '499',
      ])
      writeFileSync(join(mountPoint, 'own'), 'written')
      expect(readFileSync(join(root, 'c1/upper/own'), 'utf8')).toBe('written')
      expect(execFileSync('findmnt', ['-no', 'VFS-OPTIONS', mountPoint], { encoding: 'utf8' })).toContain(
        'nosuid',
      )
      await handlers.release(attached)
      expect(mountsBelow(root)).toEqual([])
    },
  )

  it('names the disk that did not appear', async () => {
    const attaching = attach({ ...diskStorage(join(root, 'disk')), source: '1f.7' })
    await expect(attaching).rejects.toThrow(
      /^Timeout after 0.1s waiting for uevent of a block device at PCI path 1f.7/,
    )
  })

  function attach(changes: Partial<Storage>) {
    return handlers.attach([storageOf(changes)], 'c1', neverAborted)
  }

  function diskStorage(mountPoint: string): Storage {
    const file = join(root, 'disk.img')
    writeFileSync(file, '')
    truncateSync(file, 16 * 1024 * 1024)
    return loopStorage(file, { fstype: 'ext4', mountPoint })
  }

  function loopStorage(file: string, changes: Partial<Storage>): Storage {
    const source = execFileSync('losetup', ['--find', '--show', file], { encoding: 'utf8' }).trim()
    cleanUps.push(() => execFileSync('losetup', ['--detach', source]))
    return storageOf({ driver: 'blk', source, ...changes })
  }
})

function mountsBelow(root: string): string[] {
  const table = execFileSync('findmnt', ['--noheadings', '--list', '--output', 'TARGET'], {
    encoding: 'utf8',
  })
  return table.split('\n').filter((path) => path.startsWith(`${root}/`))
}

function statusOf(path: string) {
  const { mode, gid } = lstatSync(path)
  return { mode: mode & 0o7777, gid }
}
