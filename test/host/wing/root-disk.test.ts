import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { findDiskPlace } from '../../../src/host/root-disk/disk-place.ts'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'
import {
  answerImage,
  IMAGE,
  MIB,
  newPlace,
  QUICK,
  SHA256,
  serve,
  sha256Of,
} from '../../support/host-wing/image-server.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const SERVING = { image: IMAGE, etag: '"one"' }
const DIGEST = `#sha256=${SHA256}`

const undo: (() => unknown)[] = []
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step()
})

describe('a disk that QEMU has', () => {
  it('is refused while QEMU runs, and QEMU is refused while it is prepared', async () => {
    const begun = Promise.withResolvers<void>()
    const goOn = Promise.withResolvers<void>()
    const server = await serve((request, answer) => {
      begun.resolve()
      goOn.promise.then(() => answerImage(request, answer, SERVING))
    })
    const place = newPlace()
    const options = { url: `${server.url}${DIGEST}`, ...place }
    writeFileSync(place.disk, '')
    truncateSync(place.disk, IMAGE.length)
    const qemu = await startQemu(place.disk)
    const inUse = `${place.disk}: is in use by another process, such as QEMU or another preparation`
    await expect(prepareRootDisk(options)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: inUse,
    })
    await stop(qemu)

    const prepared = prepareRootDisk(options)
    await begun.promise
    await expect(startQemu(place.disk)).rejects.toThrow('Failed to lock byte 100')
    goOn.resolve()
    await prepared
    await stop(await startQemu(place.disk))
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
  }, 60_000)
})

describe('a block device', () => {
  it('is written, and refused while it is mounted or too small', async () => {
    const server = await serve((request, answer) => answerImage(request, answer, SERVING))
    const place = { ...newPlace(), disk: loopDevice(8 * MIB) }
    await prepareRootDisk({ url: `${server.url}${DIGEST}`, ...place })
    expect(sha256Of(readFileSync(place.disk).subarray(0, IMAGE.length))).toBe(SHA256)
    expect(await prepareRootDisk({ url: `${server.url}${DIGEST}`, ...place })).toMatchObject({
      sha256: SHA256,
    })
    expect(server.ranges).toEqual([''])

    const small = { ...newPlace(), disk: loopDevice(IMAGE.length - MIB) }
    await expect(prepareRootDisk({ url: server.url, ...small })).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: `${server.url}: is larger than ${IMAGE.length - MIB} bytes, the size of ${small.disk}`,
    })

    const mounted = { ...newPlace(), disk: loopDevice(8 * MIB) }
    execFileSync('mkfs.ext4', ['-q', mounted.disk])
    mount([mounted.disk])
    await expect(prepareRootDisk({ url: server.url, ...mounted })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${mounted.disk}: is in use by another process, such as QEMU or another preparation`,
    })
  })
})

describe('the record of a block device', () => {
  it('is its own in the state folder, also behind a link', async () => {
    const [disk, link] = [loopDevice(MIB), join(temporaryFolder(), 'link')]
    symlinkSync(disk, link)
    for (const path of [disk, link]) {
      expect(await findDiskPlace(path, '/state')).toEqual({
        disk,
        stateFile: `/state/initial-image-${encodeURIComponent(disk)}`,
      })
    }
  })
})

describe('a full file system', () => {
  it('is named, and the image is continued once there is room', async () => {
    const server = await serve((request, answer) => answerImage(request, answer, SERVING))
    const folder = mount(['-t', 'tmpfs', '-o', 'size=2m,mode=700', 'tmpfs'])
    const place = { ...newPlace(), disk: join(folder, 'root.img') }
    const options = { url: `${server.url}${DIGEST}`, ...place, limits: QUICK }
    await expect(prepareRootDisk(options)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      errno: 'ENOSPC',
      message: `${place.disk}: no space left on its file system`,
    })
    await expect(refuseUnfinishedDisk(place)).rejects.toThrow('only a part')
    execFileSync('mount', ['-o', 'remount,size=16m', folder])
    await prepareRootDisk(options)
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    expect(server.ranges[1]).toMatch(/^bytes=[1-9]/)
  })
})

/** A paused machine with the disk. Rejects with what QEMU writes when it does not start. */
async function startQemu(disk: string): Promise<ChildProcess> {
  const socket = join(temporaryFolder(), 'qmp.sock')
  const qemu = spawn(
    'qemu-system-x86_64',
    [
      ...['-S', '-display', 'none', '-nodefaults', '-machine', 'pc-q35-7.2', '-accel', 'tcg'],
      ...['-drive', `if=virtio,format=raw,file=${disk}`, '-qmp', `unix:${socket},server=on,wait=off`],
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  undo.push(() => stop(qemu))
  const failure = text(qemu.stderr)
  while (qemu.exitCode === null && !(await greets(socket))) await sleep(20)
  if (qemu.exitCode !== null) throw new Error(await failure)
  return qemu
}

/** Whether QEMU greets, which it does once its disks are open. */
function greets(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path)
    socket.on('error', () => {}).on('close', () => resolve(false))
    socket.on('data', () => {
      resolve(true)
      socket.destroy()
    })
  })
}

async function stop(qemu: ChildProcess): Promise<void> {
  if (qemu.exitCode !== null || qemu.signalCode !== null) return
  const ended = once(qemu, 'exit')
  qemu.kill('SIGKILL')
  await ended
}

function loopDevice(bytes: number): string {
  const file = join(temporaryFolder(), 'device')
  writeFileSync(file, '')
  truncateSync(file, bytes)
  const device = execFileSync('losetup', ['--find', '--show', file], { encoding: 'utf8' }).trim()
  undo.push(() => execFileSync('losetup', ['--detach', device]))
  return device
}

/** Returns the mount point, which is not among the temporary folders: those are swept. */
function mount(words: readonly string[]): string {
  const folder = mkdtempSync('/run/root-disk-')
  undo.push(() => rmdirSync(folder))
  execFileSync('mount', [...words, folder])
  undo.push(() => execFileSync('umount', ['-l', folder]))
  return folder
}
