import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { readExits, readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { findHolder, startHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import {
  connected,
  nextExit,
  readAll,
  readBytes,
  sh,
  TestHolders,
} from '../../../support/host/test-holder.ts'
import { processes, processState } from '../../../support/processes.ts'

const CONSOLE_RING = 1n << 20n
const STREAM_RING = 256n << 10n

const holders = new TestHolders()

/** What `seq 1 last` prints. */
function numbers(last: number): Buffer {
  return Buffer.from(Array.from({ length: last }, (_, index) => `${index + 1}\n`).join(''))
}

describe('holder: the console', () => {
  it('keeps the output and tells its offsets', async () => {
    const holder = await holders.start()
    const exit = nextExit(holder)
    const child = await holder.start(sh('qemu', 'console', 'echo one; read word; echo "got $word"; exit 7'))
    expect(processState(child.pid)?.parent).toBe(holder.pid)
    const { first, stream } = await holder.attach(0, 0n)
    stream.write('two\n')
    expect(first).toBe(0n)
    expect(String(await readAll(stream))).toBe('one\ngot two\n')
    expect(await exit).toEqual({ ...child, exit: { code: 7, signal: undefined } })
    expect(await holder.rings()).toEqual([{ number: 0, first: 0n, end: 12n, isClosed: true }])
    const later = await holder.attach(0, 4n)
    expect(String(await readAll(later.stream))).toBe('got two\n')
    await expect(holder.attach(0, 13n)).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
  })

  it('keeps exactly the last MiB', async () => {
    const holder = await holders.start()
    const exit = nextExit(holder)
    await holder.start(sh('qemu', 'console', 'seq 1 500000'))
    await exit
    const text = numbers(500_000)
    const end = BigInt(text.length)
    await expect
      .poll(() => holder.rings())
      .toEqual([{ number: 0, first: end - CONSOLE_RING, end, isClosed: true }])
    const { first, stream } = await holder.attach(0, 5n)
    expect(first).toBe(end - CONSOLE_RING)
    expect((await readAll(stream)).equals(text.subarray(Number(first)))).toBe(true)
  })

  it('gives two clients the same, and takes the input of both', async () => {
    const holder = await holders.start()
    await holder.start(
      sh('qemu', 'console', 'read a; read b; echo "$a $b" | tr " " "\\n" | sort; seq 1 200000'),
    )
    const [one, two] = await Promise.all([holder.attach(0, 0n), holder.attach(0, 0n)])
    one.stream.write('one\n')
    two.stream.write('two\n')
    const outputs = await Promise.all([readAll(one.stream), readAll(two.stream)])
    const expected = Buffer.concat([Buffer.from('one\ntwo\n'), numbers(200_000)])
    for (const output of outputs) expect(output.equals(expected)).toBe(true)
  })

  it('closes a client that the ring overtakes, whose bytes until then are the right ones', async () => {
    const holder = await holders.start()
    await holder.start(sh('qemu', 'console', 'read go; seq 1 500000; sleep 1000'))
    const { stream } = await holder.attach(0, 0n)
    const other = await holder.attach(0, 0n)
    const text = numbers(500_000)
    other.stream.write('go\n')
    expect((await readBytes(other.stream, text.length)).equals(text)).toBe(true)
    const late = await readAll(stream)
    expect(late.length).toBeGreaterThan(0)
    expect(late.length).toBeLessThan(text.length - Number(CONSOLE_RING))
    expect(late.equals(text.subarray(0, late.length))).toBe(true)
    const again = await holder.attach(0, BigInt(late.length))
    expect(again.first).toBe(BigInt(text.length) - CONSOLE_RING)
  })

  it('waits for a client that reads more slowly than the console prints', async () => {
    const holder = await holders.start()
    await holder.start(sh('qemu', 'console', 'read go; head -c 16000000 /dev/zero'))
    const { stream } = await holder.attach(0, 0n)
    stream.write('go\n')
    let length = 0
    let pause = 0
    for await (const chunk of stream) {
      length += chunk.length
      if (length < pause) continue
      await setTimeout(1)
      pause = length + (512 << 10)
    }
    expect(length).toBe(16_000_000)
  })

  it('goes on after its end, also in a new holder', async () => {
    const folder = holders.newFolder()
    const first = await holders.start(folder)
    for (const word of ['one', 'two']) {
      const exit = nextExit(first)
      await first.start(sh('qemu', 'console', `echo ${word}`))
      await exit
    }
    await first.end()
    const second = await holders.start(folder)
    await second.start(sh('qemu', 'console', 'echo three'))
    const { stream } = await second.attach(0, 4n)
    expect(String(await readAll(stream))).toBe('two\nthree\n')
  })

  it('makes only the client wait whose input is not read', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const input = Buffer.alloc(4 << 20, 'x')
    const late = `while [ ! -e go ]; do sleep 0.01; done; head -c ${input.length} | wc -c`
    await holder.start(sh('qemu', 'console', `echo there; ${late}`))
    const [writer, reader] = await Promise.all([holder.attach(0, 0n), holder.attach(0, 0n)])
    const written = once(writer.stream, 'drain')
    expect(writer.stream.write(input)).toBe(false)
    expect(String(await readBytes(reader.stream, 6))).toBe('there\n')
    for (let count = 0; count < 100; count++) expect(await holder.children()).toHaveLength(1)
    expect(writer.stream.writableLength).toBeGreaterThan(0)
    writeFileSync(join(folder, 'go'), '')
    expect(String(await readAll(reader.stream))).toBe(`${input.length}\n`)
    await written
  })
})

describe('holder: the ports', () => {
  it('keeps what the one peer sends, and gives it the input', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const path = join(folder, 'vsock.sock_1024')
    await holder.listen(path, 1024)
    expect(statSync(path).mode & 0o777).toBe(0o666)
    const { stream } = await holder.attach(1024, 0n)
    stream.write('early ')
    await holder.rings()
    const peer = await connected(path)
    await expect.poll(() => existsSync(path)).toBe(false)
    peer.write('out')
    expect(String(await readBytes(stream, 3))).toBe('out')
    stream.write('in')
    expect(String(await readBytes(peer, 8))).toBe('early in')
    const text = numbers(100_000)
    peer.end(text)
    expect((await readAll(stream)).equals(text)).toBe(true)
    const end = BigInt(text.length + 3)
    expect(await holder.rings()).toEqual([{ number: 1024, first: end - STREAM_RING, end, isClosed: true }])
    await holder.closeRing(1024)
    expect(await holder.rings()).toEqual([])
    expect(existsSync(join(folder, 'streams/1024.ring'))).toBe(false)
  })

  it('removes the socket of a port that nobody has connected to', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const path = join(folder, 'port')
    await holder.listen(path, 5)
    await expect(holder.listen(path, 6)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    await expect(holder.listen(join(folder, 'other'), 5)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    const { stream } = await holder.attach(5, 0n)
    await holder.closeRing(5)
    expect(await readAll(stream)).toHaveLength(0)
    expect(existsSync(path)).toBe(false)
    await expect(holder.closeRing(5)).rejects.toMatchObject({ code: 'NOT_FOUND' })
  })
})

describe('holder: the children', () => {
  it('is found again with them', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const child = await holder.start(sh('daemon', 'log', 'echo text; echo error >&2; exec sleep 1000'))
    await expect.poll(() => readFileSync(join(folder, 'daemon.log'), 'utf8')).toBe('text\nerror\n')
    holder.disconnect()
    const again = await findHolder(folder)
    if (again === undefined) throw new Error('not found')
    holders.endLater(again)
    expect(again.pid).toBe(holder.pid)
    expect(await again.children()).toEqual([child])
    const exit = nextExit(again)
    await again.kill('daemon', 15)
    expect((await exit).exit).toEqual({ code: undefined, signal: 15 })
    await again.kill('daemon', 9)
    await again.end()
    expect(await findHolder(folder)).toBeUndefined()
  })

  it('are in the cgroups of the holder, whose limits they do not leave', async () => {
    const isV2 = existsSync('/sys/fs/cgroup/cgroup.controllers')
    const roots = isV2 ? [''] : ['memory', 'pids', 'unified']
    const paths = roots.map((name) => join('/sys/fs/cgroup', name, `holder-${process.pid}`))
    try {
      for (const path of paths) mkdirSync(path)
      const cgroupsOf = (pid: number | string) =>
        readFileSync(`/proc/${pid}/cgroup`, 'utf8')
          .split('\n')
          .filter((line) => line.endsWith(`/holder-${process.pid}`))
      const holder = await startHolder(holders.newFolder(), holders.program, paths)
      try {
        const child = await holder.start(sh('child', 'log', 'sleep 1000'))
        for (const pid of [holder.pid, child.pid]) expect(cgroupsOf(pid)).toHaveLength(roots.length)
      } finally {
        await holder.end()
      }
      const missing = startHolder(holders.newFolder(), holders.program, [...paths, '/sys/fs/cgroup/none'])
      await expect(missing).rejects.toThrow('/sys/fs/cgroup/none: ENOENT')
    } finally {
      for (const path of paths) await expect.poll(() => rmdirSync(path)).toBe(undefined)
    }
  })

  it('have a session each, no terminal, and no descriptor but stdio', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    await holder.listen(join(folder, 'port'), 1)
    await holder.attach(1, 0n)
    const exit = nextExit(holder)
    const script = 'ls /proc/self/fd | tr "\\n" " "; cut -d " " -f 5-7 /proc/self/stat; pwd'
    const { pid } = await holder.start(sh('daemon', 'log', script))
    await exit
    // Descriptor 3 is that of ls itself. No terminal is 0.
    await expect
      .poll(() => readFileSync(join(folder, 'daemon.log'), 'utf8'))
      .toBe(`0 1 2 3 ${pid} ${pid} 0\n${folder}\n`)
  })

  it('keep the exit of each, by name', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const first = nextExit(holder)
    const ended = await holder.start(sh('one', 'log', 'exit 3'))
    await first
    const running = await holder.start(sh('two', 'log', 'exec sleep 1000'))
    await expect(holder.start(sh('two', 'log', 'true'))).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    process.kill(holder.pid, 'SIGKILL')
    await holder.ended
    expect(await readExits(folder)).toEqual([{ ...ended, exit: { code: 3, signal: undefined } }, running])
  })

  it('die with the holder, whatever they ignore and wherever they are', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const grandchild =
      'setsid setpriv --reuid 65534 --clear-groups sh -c "trap \\"\\" TERM HUP INT; sleep 1001 & wait" &'
    await holder.start(
      sh('qemu', 'console', `trap "" TERM HUP INT; ${grandchild} echo last; sleep 1002; wait`),
    )
    await expect.poll(() => descendants(holder.pid).length).toBe(4)
    await expect.poll(async () => (await holder.rings())[0]?.end).toBe(5n)
    const pids = descendants(holder.pid)
    process.kill(holder.pid, 'SIGKILL')
    await holder.ended
    expect(pids.filter((pid) => processState(pid) !== undefined)).toEqual([])
    expect(await findHolder(folder)).toBeUndefined()
    await expect(holder.rings()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    expect(await readRing(folder, 0)).toEqual({ first: 0n, end: 5n, bytes: Buffer.from('last\n') })
  })

  it('are killed with their process groups', async () => {
    const holder = await holders.start()
    await holder.start(sh('daemon', 'log', 'sleep 1003 & wait'))
    await expect.poll(() => descendants(holder.pid).length).toBe(2)
    await holder.kill('daemon', 9)
    await expect.poll(() => descendants(holder.pid)).toEqual([])
  })

  it('are told by name when they cannot be started', async () => {
    const holder = await holders.start()
    const plan = { name: 'x', output: 'console', argv: ['/nonexistent'] } as const
    await expect(holder.start(plan)).rejects.toThrow('start x: /nonexistent: ENOENT')
    await expect(holder.start({ ...plan, name: '../x' })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(holder.kill('x', 9)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    const exit = nextExit(holder)
    const argv = ['printf', '%s|', '', 'a b', '100%', 'ü', 'line\nbreak'] as const
    await holder.start({ ...plan, argv })
    await exit
    expect(String(await readAll((await holder.attach(0, 0n)).stream))).toBe('|a b|100%|ü|line\nbreak|')
  })
})

function descendants(pid: number): number[] {
  const all = processes()
  const below = (parent: number): number[] =>
    all.filter((each) => each.parent === parent).flatMap((each) => [each.pid, ...below(each.pid)])
  return below(pid)
}
