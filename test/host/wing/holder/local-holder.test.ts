import { once } from 'node:events'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { LocalHolder } from '../../../../src/host/instance/holder/local-holder.ts'
import { nextExit, readAll, sh } from '../../../support/host/test-holder.ts'
import { processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const RING_BYTES = 1 << 20

/** A process that dies with its holder is killed in test/vm/microvm/run.test.ts. */
describe('a holder in this process', () => {
  const folder = temporaryFolder()
  const started: LocalHolder[] = []
  afterEach(async () => {
    for (const holder of started.splice(0)) await holder.end()
  })

  function newHolder(): LocalHolder {
    const holder = new LocalHolder(folder)
    started.push(holder)
    return holder
  }

  it('keeps the console, passes input on, and tells how the process has ended', async () => {
    const holder = newHolder()
    const exit = nextExit(holder)
    const child = await holder.start(sh('qemu', 'console', 'echo one; read word; echo "got $word"; exit 7'))
    const { first, stream } = await holder.attach(0, 0n)
    stream.write('two\n')
    expect([first, String(await readAll(stream))]).toEqual([0n, 'one\ngot two\n'])
    expect(await exit).toEqual({ ...child, exit: { code: 7, signal: undefined } })
    expect(await holder.children()).toEqual([await exit])
    expect(await holder.rings()).toEqual([{ number: 0, first: 0n, end: 12n, isClosed: true }])
    expect(String(await readAll((await holder.attach(0, 4n)).stream))).toBe('got two\n')
    await expect(holder.attach(0, 13n)).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
    await expect(holder.attach(1, 0n)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })

  it('keeps the last MiB for a reader that fell behind and was cut off', async () => {
    const holder = newHolder()
    await holder.start(sh('qemu', 'console', 'read line; seq 1 1000000; read line'))
    const { stream } = await holder.attach(0, 0n)
    stream.write('go\n')
    const text = Array.from({ length: 1_000_000 }, (_, index) => `${index + 1}\n`).join('')
    const end = BigInt(text.length)
    await expect.poll(async () => (await holder.rings())[0]?.end).toBe(end)
    const read = String(await readAll(stream))
    expect(read.length).toBeLessThan(3 * RING_BYTES)
    expect(text.startsWith(read)).toBe(true)
    const again = await holder.attach(0, BigInt(read.length))
    expect(Number(end - again.first)).toBeLessThanOrEqual(RING_BYTES)
    await holder.kill('qemu', 9)
    expect(String(await readAll(again.stream))).toBe(text.slice(Number(again.first)))
  })

  it('bounds a log, which has the last line when the end is told', async () => {
    const holder = newHolder()
    const exit = nextExit(holder)
    await holder.start(sh('noisy', 'log', 'seq 1 600000; echo last >&2'))
    await exit
    const log = join(folder, 'noisy.log')
    expect(statSync(log).size).toBeLessThan(2 * RING_BYTES)
    expect(readFileSync(log, 'utf8').endsWith('last\n')).toBe(true)
  })

  it('closes its readers once the process has ended', async () => {
    const holder = newHolder()
    await holder.start(sh('qemu', 'console', 'read line'))
    const { stream } = await holder.attach(0, 0n)
    const closed = once(stream.resume(), 'close')
    await holder.kill('qemu', 9)
    await closed
    expect(stream.readableEnded).toBe(true)
  })

  it('keeps what comes in many small pieces', async () => {
    const holder = newHolder()
    await holder.start(sh('qemu', 'console', 'for i in $(seq 3000); do echo $i; done; read line'))
    const text = Array.from({ length: 3000 }, (_, index) => `${index + 1}\n`).join('')
    await expect.poll(async () => (await holder.rings())[0]?.end).toBe(BigInt(text.length))
    const { stream } = await holder.attach(0, 0n)
    await holder.kill('qemu', 9)
    expect(String(await readAll(stream))).toBe(text)
  })

  it('goes on without a log that it cannot write', async () => {
    const holder = new LocalHolder('/nowhere')
    const exit = nextExit(holder)
    await holder.start(sh('noisy', 'log', 'echo last >&2; exit 3'))
    expect(await exit).toMatchObject({ exit: { code: 3 } })
  })

  it('ends with all its processes, also those that refuse', async () => {
    const holder = newHolder()
    const stubborn = sh('qemu', 'console', 'trap "" TERM INT HUP; sleep 1000 & echo up; wait')
    const { pid } = await holder.start(stubborn)
    await once((await holder.attach(0, 0n)).stream, 'data')
    await holder.end()
    await holder.ended
    expect(processState(pid)).toBeUndefined()
  })

  it('tells of a program that is not there by its end', async () => {
    const holder = newHolder()
    const exit = nextExit(holder)
    await holder.start({ name: 'none', argv: ['/nowhere/none'], output: 'log' })
    expect(await exit).toMatchObject({ exit: { code: 127 } })
    expect(readFileSync(join(folder, 'none.log'), 'utf8')).toContain('/nowhere/none')
  })

  it('listens on no ports', async () => {
    await expect(newHolder().listen('/nowhere')).rejects.toMatchObject({ code: 'UNIMPLEMENTED' })
  })
})
