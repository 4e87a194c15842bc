import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  closeSync,
  ftruncateSync,
  openSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import { nextExit, TestHolders } from '../../../support/host/test-holder.ts'

const holders = new TestHolders()
const USER = 0x7000_0123
const MIB = 2 ** 20
const SIZE = 64 * MIB

/** A file of 64 MiB with a little data in three places. */
function savedMemory(): string {
  const path = join(holders.newFolder(), 'memory')
  const fd = openSync(path, 'w', 0o600)
  ftruncateSync(fd, SIZE)
  for (const at of [0, 20 * MIB, SIZE - 4]) writeSync(fd, 'data', at)
  closeSync(fd)
  return path
}

async function keeper(path: string): Promise<{ readonly holder: HolderClient; readonly socket: string }> {
  const folder = holders.newFolder()
  const holder = await holders.start(folder)
  await holder.memory(path)
  return { holder, socket: join(folder, 'holder.sock') }
}

/** Runs a script with the memory as descriptor 3, and returns what it prints. */
async function seen(script: string, memory: string, prepare?: (holder: HolderClient) => Promise<void>) {
  const folder = holders.newFolder()
  const holder = await holders.start(folder)
  await prepare?.(holder)
  const exit = nextExit(holder)
  const walls = [`uid=${USER}`, `memory=3:${memory}`]
  await holder.start({ name: 'a', output: 'log', argv: ['/bin/sh', '-c', script], walls })
  await exit
  return readFileSync(join(folder, 'a.log'), 'utf8')
}

const digest = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex')
const SUM = 'sha256sum < /proc/self/fd/3; stat -L -c "%s %b" /proc/self/fd/3'
/** Each way to write prints the errno of its failure, or `written`. */
const WRITE = `perl -e '
  open(F, "+<", "/proc/self/fd/3") or print "open ", $!+0;
  print defined(syswrite(F, "x")) ? "written " : ($!+0) . " ";
  print truncate(F, 1) ? "cut " : ($!+0) . " ";
  print truncate(F, 2**30) ? "grown " : ($!+0) . " ";
  print fcntl(F, 1033, 0) ? "sealed " : ($!+0) . " ";
  # mmap of one page, to be read and written, shared, and then private
  print syscall(9, 0, 4096, 3, 1, fileno(F), 0) == -1 ? ($!+0) . " " : "mapped ";
  print syscall(9, 0, 4096, 3, 2, fileno(F), 0) == -1 ? ($!+0) . " " : "private";
'`
const EPERM = 1

describe('holder: memory', () => {
  it('is given sealed to processes of others, who can map it and not write it', async () => {
    const path = savedMemory()
    const { socket } = await keeper(path)
    const [sum, sizes] = (await seen(SUM, socket)).split('\n')
    expect(sum).toBe(`${digest(readFileSync(path))}  -`)
    const [bytes, blocks] = (sizes ?? '').split(' ').map(Number)
    expect(bytes).toBe(SIZE)
    // Holes stay holes.
    expect(blocks).toBeLessThan(100)
    expect(await seen(WRITE, socket)).toBe(`${`${EPERM} `.repeat(5)}private`)
    expect((await seen(SUM, socket)).split('\n')[0]).toBe(sum)
  })

  it('lives in its keeper alone, and in those who have it already', async () => {
    const path = savedMemory()
    const { holder, socket } = await keeper(path)
    const user = await holders.start()
    const [script, walls] = ['read line; sha256sum < /proc/self/fd/3', [`memory=3:${socket}`]]
    await user.start({ name: 'a', output: 'console', argv: ['/bin/sh', '-c', script], walls })
    await holder.end()
    await expect(seen('true', socket)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: expect.stringMatching(/memory=3:.*: (ECONNREFUSED|ENOENT)$/),
    })
    writeFileSync(path, 'other')
    const { stream } = await user.attach(0, 0n)
    stream.write('go\n')
    const chunks: Buffer[] = []
    for await (const chunk of stream) chunks.push(chunk)
    expect(String(Buffer.concat(chunks))).toMatch(/^[0-9a-f]{64} {2}-/)
  })

  it('is refused where there is none, and a second time', async () => {
    const path = savedMemory()
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    await expect(seen('true', join(folder, 'holder.sock'))).rejects.toThrow(/: ENODATA$/)
    expect(await holder.hasSealedMemory()).toBe(false)
    await expect(holder.memory(`${path}-not`)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await expect(holder.memory(folder)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    symlinkSync(path, join(folder, 'link'))
    await expect(holder.memory(join(folder, 'link'))).rejects.toThrow('ELOOP')
    execFileSync('mkfifo', [join(folder, 'pipe')])
    await expect(holder.memory(join(folder, 'pipe'))).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
    await holder.memory(path)
    expect(await holder.hasSealedMemory()).toBe(true)
    expect((await holder.children()).length).toBe(0)
    await expect(holder.memory(path)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
  })
})
