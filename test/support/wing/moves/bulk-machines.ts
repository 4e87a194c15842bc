import { mkdirSync, readdirSync, readFileSync, readlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import { makeFolders } from '../../../../src/host/instance/machine/instance-files.ts'
import { QEMU } from '../../../../src/host/instance/machine/machine.ts'
import { confinement, StartOpener } from '../../../../src/host/instance/machine/walls.ts'
import type { BulkDisk, BulkQemu } from '../../../../src/host/migration/bulk/bulk.ts'
import { controlArguments, SANDBOX } from '../../../../src/host/qemu/qemu-arguments.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import type { TestHolders } from '../../host/test-holder.ts'
import { NUMBERS, tinyGuest } from '../tiny-guest.ts'

const FIRST_UID = 0x7000_2000
const MIB = 2 ** 20

export interface BulkMachine extends BulkQemu {
  readonly holder: HolderClient
  readonly pid: number
  /** The file of the disk. */
  readonly path: string
  readonly disk: BulkDisk
  /** How many sockets QEMU has before anything is moved. */
  readonly sockets: number
  log(): string
}

interface MachinePlan {
  readonly memoryMib?: number
  readonly diskMib?: number
  /** Is called with the folder of the disk's file before that is made. */
  readonly makeRoom?: (folder: string) => void
  /** Waits for the state of another one. */
  readonly isIncoming?: true
  readonly does?: Parameters<typeof tinyGuest>[1]
}

/** A QEMU of machine pc with one IDE disk, in the walls that an instance's has. It runs unless it waits for another's state. */
export async function startBulkMachine(
  holders: Pick<TestHolders, 'newFolder' | 'start'>,
  { memoryMib = 64, diskMib = 16, does = 'numbers', isIncoming, makeRoom = () => {} }: MachinePlan = {},
): Promise<BulkMachine> {
  const folder = holders.newFolder()
  const uid = FIRST_UID + Number(folder.split('/').at(-1))
  makeFolders(folder, uid)
  const files = join(folder, 'files')
  mkdirSync(files, { mode: 0o700 })
  makeRoom(files)
  const path = join(files, 'disk')
  // What follows the numbers of a source is not empty, so that it is copied.
  const rest = Buffer.alloc(isIncoming ? 0 : (diskMib - NUMBERS.sectors / 2048) * MIB, 'rest')
  writeFileSync(
    path,
    Buffer.concat([Buffer.alloc(rest.length === 0 ? 0 : (NUMBERS.sectors / 2048) * MIB), rest]),
  )
  truncateSync(path, diskMib * MIB)
  const opener = new StartOpener()
  const qmp = { fd: opener.listener(QEMU.socket), listens: true } as const
  const filename = opener.disk(path, true)
  const kernel = opener.read(tinyGuest(files, does))
  const blockdev = (options: object) => ['-blockdev', JSON.stringify(options)]
  const argv = [
    'qemu-system-x86_64',
    ...['-no-user-config', '-nodefaults', '-display', 'none', ...SANDBOX],
    ...['-machine', 'pc,usb=off,memory-backend=memory', '-accel', 'tcg', '-m', `${memoryMib}M`],
    ...['-object', `memory-backend-memfd,id=memory,size=${memoryMib}M,share=on`, '-kernel', kernel],
    ...controlArguments(qmp),
    ...blockdev({ driver: 'file', 'node-name': 'name-disk.a', filename }),
    ...blockdev({ driver: 'raw', 'node-name': 'name-disk', file: 'name-disk.a' }),
    ...['-device', 'ide-hd,drive=name-disk,bus=ide.0', '-S', ...(isIncoming ? ['-incoming', 'defer'] : [])],
    ...opener.args,
  ] as const
  const holder = await holders.start(folder)
  const walls = [...opener.walls, ...confinement({ uid, groups: [] })]
  const { pid } = await holder.start({ name: QEMU.child, argv, walls, output: 'console' })
  const client = await connectQmp(join(folder, QEMU.socket), AbortSignal.timeout(20_000), {
    commandMs: 30_000,
  })
  if (!isIncoming) await client.execute('cont', {}, neverAborted)
  const disk = { key: 'disk', node: 'name-disk', sizeBytes: diskMib * MIB, sync: 'full' } as const
  return {
    ...{ folder, holder, pid, path, disk, qmp: client, isWalled: true, signal: neverAborted },
    sockets: socketsOf(pid),
    log: () => readFileSync(join(folder, `${QEMU.child}.log`), 'utf8'),
  }
}

/** How many sockets a process has open. */
export function socketsOf(pid: number): number {
  const folder = `/proc/${pid}/fd`
  return readdirSync(folder).filter((fd) => readlinkSync(join(folder, fd)).startsWith('socket:')).length
}

/** The last number that the guest has written. */
export async function lastNumber(machine: BulkMachine): Promise<number> {
  return (await memoryOf(machine, NUMBERS.lastAt, 4)).readUInt32LE(0)
}

/** Throws when a sector or a page has another number than the guest that stands still has written last to it. */
export async function checkNumbers(machine: BulkMachine): Promise<number> {
  const last = await lastNumber(machine)
  const disk = readFileSync(machine.path)
  const pages = await memoryOf(machine, NUMBERS.pagesAt, NUMBERS.pages * 4096)
  const check = (what: string, count: number, at: (index: number) => number) => {
    for (let index = 0; index < count; index++) {
      const expected = last - ((last - index + count) % count)
      const found = at(index)
      // The one after the last may be there already.
      if (found !== Math.max(0, expected) && found !== last + 1)
        throw new Error(`${what} ${index} of the last number ${last}: ${found}, want ${expected}`)
    }
  }
  check('sector', NUMBERS.sectors, (index) => disk.readUInt32LE(index * 512))
  check('page', NUMBERS.pages, (index) => pages.readUInt32LE(index * 4096))
  return last
}

/** All of the memory that the guest of a machine of 64 MiB writes to, and that it was loaded into. */
export async function wholeMemory(machine: BulkMachine): Promise<Buffer> {
  return await memoryOf(machine, MIB, 63 * MIB)
}

/** Physical memory of a guest that stands still. */
async function memoryOf({ qmp, folder }: BulkMachine, at: number, bytes: number): Promise<Buffer> {
  // QEMU can write only in this folder.
  const name = `run/memory-${at}`
  await qmp.command(
    { execute: 'pmemsave', arguments: { val: at, size: bytes, filename: name } },
    neverAborted,
  )
  return readFileSync(join(folder, name))
}
