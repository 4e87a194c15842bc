import { createHash } from 'node:crypto'
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import { confinement, StartOpener } from '../../../../src/host/instance/machine/walls.ts'
import { qemuArguments } from '../../../../src/host/qemu/qemu-arguments.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import type { SavedMemory } from '../../../../src/host/spec/spec.ts'
import { specOf } from '../../../support/host/specs.ts'
import { TestHolders } from '../../../support/host/test-holder.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

const holders = new TestHolders()
const root = temporaryFolder()
const MIB = 2 ** 20
const SIZE_MIB = 64
const LOADED_AT = 1 * MIB
const TEXT_AT = 32 * MIB
const TEXT = 'template'
const MULTIBOOT = 0x1bad_b002
const FIRST_USER = 0x7000_0200

const digest = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex')

function template(): string {
  const path = join(mkdtempSync(join(root, 't')), 'memory')
  const fd = openSync(path, 'w', 0o600)
  ftruncateSync(fd, SIZE_MIB * MIB)
  writeSync(fd, TEXT, TEXT_AT)
  closeSync(fd)
  return path
}

/** Runs a guest, whose kernel goes to its memory, and returns a text that the template has. */
async function memoryOf(holder: HolderClient, folder: string, memory: SavedMemory, uid: number) {
  const kernel = tinyGuest(root, 'idle')
  const spec = { ...specOf([], { machine: 'pc', memoryMib: SIZE_MIB, kernel, initrd: undefined }), memory }
  const opener = new StartOpener()
  const qmp = { fd: opener.listener('qmp.sock'), listens: true } as const
  const words = qemuArguments(spec, { acceleration: 'tcg', qmp, opener, isKept: true })
  await holder.start({
    ...{ name: 'qemu', output: 'log', argv: ['qemu-system-x86_64', ...opener.args, ...words] },
    walls: [...opener.walls, ...confinement({ uid, groups: [] })],
  })
  const signal = AbortSignal.timeout(60_000)
  const client = await connectQmp(join(folder, 'qmp.sock'), signal)
  const read = async (at: number, size: number) => {
    const args = { 'command-line': `xp /${size}xb ${at}` }
    const shown = await client.command({ execute: 'human-monitor-command', arguments: args }, signal)
    return Buffer.from(
      [...String(shown).matchAll(/ 0x([0-9a-f]{2})/g)].map(([, byte]) => Number(`0x${byte}`)),
    )
  }
  // The firmware loads the kernel.
  const loaded = () => read(LOADED_AT, 4).then((bytes) => bytes.readUInt32LE(0))
  await expect.poll(loaded, { timeout: 60_000 }).toBe(MULTIBOOT)
  const text = String(await read(TEXT_AT, TEXT.length))
  client.close()
  return text
}

describe('the memory of a guest that was saved', () => {
  it('is that of many machines of several users, and none of them changes the template', async () => {
    const path = template()
    const before = digest(path)
    const keeping = holders.newFolder()
    const keeper = await holders.start(keeping)
    await keeper.memory(path)
    const socket = join(keeping, 'holder.sock')
    const clones = Array.from({ length: 3 }, async (_, index) => {
      const folder = holders.newFolder()
      const saved = { path: socket }
      return await memoryOf(await holders.start(folder), folder, saved, FIRST_USER + index)
    })
    for (const seen of await Promise.all(clones)) expect(seen).toBe(TEXT)
    const folder = holders.newFolder()
    const look = await holders.start(folder)
    const ended = new Promise<void>((resolve) => look.onExit(() => resolve()))
    const argv = ['sha256sum', '/proc/self/fd/3'] as const
    await look.start({ name: 'sum', output: 'log', argv, walls: [`memory=3:${socket}`] })
    await ended
    expect(readFileSync(join(folder, 'sum.log'), 'utf8').split(' ')[0]).toBe(before)
    expect(digest(path)).toBe(before)
  })
})
