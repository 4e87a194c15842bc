import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { unwrap } from '../../src/os/errors.ts'
import type { Native } from '../../src/os/native.ts'
import { linuxConsoles } from '../../src/os/streams/consoles.ts'
import { linuxStreams } from '../../src/os/streams/linux-streams.ts'
import {
  type AttachedRelay,
  type Fd,
  type RelayKeep,
  type RelayOptions,
  type RelayTail,
  type Streams,
  TOTALS_BYTES,
} from '../../src/os/streams/streams.ts'
import { realNative, withNativeInOtherProcess } from '../support/os/real-native.ts'
import { startRuntimeWithPty } from '../support/programs/python-pty.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

let native: Native
let streams: Streams
beforeAll(async () => {
  native = await realNative()
  streams = linuxStreams(native)
})

const opened = new Set<Fd>()
afterEach(() => {
  for (const fd of opened) streams.close(fd)
  opened.clear()
})

function open(kind: 'pipe' | 'socketPair'): readonly [Fd, Fd] {
  return unwrap('open', kind, native[kind]())
}

function kept(fd: Fd): Fd {
  opened.add(fd)
  native.setNonBlocking(fd, true)
  return fd
}

function close(fd: Fd): void {
  opened.delete(fd)
  streams.close(fd)
}

function pipeToSocket(options: RelayOptions = {}) {
  const [source, writing] = open('pipe')
  const [target, reading] = open('socketPair')
  return {
    writing: kept(writing),
    reading: kept(reading),
    result: streams.relay(source, target, options),
  }
}

function keeping(bytes: number): { readonly keep: RelayKeep; readonly read: () => RelayTail } {
  let read: (() => RelayTail) | undefined
  const keep: RelayKeep = {
    bytes,
    started: (reader) => {
      read = reader
    },
  }
  return {
    keep,
    read: () => {
      if (read === undefined) throw new Error('the relay was not started')
      return read()
    },
  }
}

async function readToEnd(fd: Fd, bytesAtATime = 65536): Promise<Buffer> {
  const chunks: Buffer[] = []
  for (;;) {
    await streams.readable(fd)
    const chunk = streams.tryRead(fd, bytesAtATime)
    if (chunk?.length === 0) return Buffer.concat(chunks)
    if (chunk !== undefined) chunks.push(chunk)
  }
}

async function writeAll(fd: Fd, data: Buffer): Promise<void> {
  for (let rest = data; rest.length > 0; ) {
    rest = rest.subarray(streams.tryWrite(fd, rest))
    if (rest.length > 0) await streams.writable(fd)
  }
}

/** The same numbers below a bound in every run. */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** More than all buffers between a writer and a reader hold. */
const TOO_MUCH = 8 * 1024 * 1024

/** Differs from byte to byte and from kilobyte to kilobyte, so no loss or repetition goes unnoticed. */
function pattern(length: number): Buffer {
  return Buffer.from(Uint32Array.from({ length: length / 4 }, (_, index) => index * 2654435761).buffer)
}

async function digestOf(process: ReturnType<typeof spawn>): Promise<string> {
  const chunks: Buffer[] = []
  process.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(process, 'close')
  return Buffer.concat(chunks).toString()
}

const LARGE = 256 * 1024 * 1024
const GENERATE = `seq 1 100000000 | head -c ${LARGE}`

describe('relay', () => {
  it('moves 256 MiB from a pipe to a socket, every byte, without growing', async () => {
    const [source, writing] = open('pipe')
    const [target, reading] = open('socketPair')
    const writer = spawn('sh', ['-c', GENERATE], { stdio: ['ignore', writing, 'inherit'] })
    const digest = digestOf(spawn('sha256sum', { stdio: [reading, 'pipe', 'inherit'] }))
    const expected = digestOf(
      spawn('sh', ['-c', `${GENERATE} | sha256sum`], { stdio: ['ignore', 'pipe', 'inherit'] }),
    )
    native.close(writing)
    native.close(reading)
    const rssBefore = process.memoryUsage.rss()
    const bytesBefore = streams.relayedBytes()
    const result = streams.relay(source, target)
    await once(writer, 'close')
    expect(await result).toEqual({ bytes: BigInt(LARGE), errno: undefined })
    expect(await digest).toBe(await expected)
    expect(streams.relayedBytes() - bytesBefore).toBe(BigInt(LARGE))
    expect(process.memoryUsage.rss() - rssBefore).toBeLessThan(16 * 1024 * 1024)
  }, 60_000)

  it('ends with a full close of the target when the source ends', async () => {
    const { writing, reading, result } = pipeToSocket()
    await writeAll(writing, Buffer.from('last words'))
    close(writing)
    expect((await readToEnd(reading)).toString()).toBe('last words')
    expect(await result).toEqual({ bytes: 10n, errno: undefined })
    expect(native.write(reading, Buffer.from('anybody?'))).toBe(-32)
  })

  it('moves from a socket to a pipe that is read in small pieces', async () => {
    const [source, writing] = open('socketPair')
    const [reading, target] = open('pipe')
    kept(writing)
    kept(reading)
    const result = streams.relay(source, target)
    const data = pattern(2 * 1024 * 1024)
    const written = writeAll(writing, data).then(() => close(writing))
    expect((await readToEnd(reading, 1000)).equals(data)).toBe(true)
    await written
    expect(await result).toEqual({ bytes: BigInt(data.length), errno: undefined })
  })

  it('blocks only the stream whose reader does not read', async () => {
    const stuck = pipeToSocket()
    const stuckWrite = writeAll(stuck.writing, pattern(TOO_MUCH))
    const flowing = pipeToSocket()
    const data = pattern(TOO_MUCH)
    const written = writeAll(flowing.writing, data).then(() => close(flowing.writing))
    expect((await readToEnd(flowing.reading)).equals(data)).toBe(true)
    await written
    expect(await flowing.result).toEqual({ bytes: BigInt(data.length), errno: undefined })

    close(stuck.reading)
    await expect(stuckWrite).rejects.toMatchObject({ errno: 'EPIPE' })
    expect(await stuck.result).toMatchObject({ errno: 'EPIPE' })
  })

  it('loses nothing while the reader does not read', async () => {
    const { writing, reading, result } = pipeToSocket()
    const data = pattern(TOO_MUCH)
    const written = writeAll(writing, data).then(() => close(writing))
    await streams.readable(reading)
    expect((await readToEnd(reading)).equals(data)).toBe(true)
    await written
    expect(await result).toEqual({ bytes: BigInt(data.length), errno: undefined })
  })

  it('notices the loss of the reader while there is nothing to move', async () => {
    const { writing, reading, result } = pipeToSocket()
    await writeAll(writing, Buffer.from('a'))
    await streams.readable(reading)
    close(reading)
    expect(await result).toEqual({ bytes: 1n, errno: 'EPIPE' })
    expect(native.write(writing, Buffer.from('b'))).toBe(-32)
  })

  it('stops on request and closes both ends', async () => {
    const stop = new AbortController()
    const { reading, result } = pipeToSocket({ signal: stop.signal })
    stop.abort()
    expect(await result).toEqual({ bytes: 0n, errno: 'ECANCELED' })
    expect((await readToEnd(reading)).length).toBe(0)
  })

  it('drains: ends at once when its source is empty but still open', async () => {
    const drain = new AbortController()
    const { writing, reading, result } = pipeToSocket({ drain: drain.signal })
    await writeAll(writing, Buffer.from('a'))
    await streams.readable(reading)
    drain.abort()
    expect((await readToEnd(reading)).toString()).toBe('a')
    expect(await result).toEqual({ bytes: 1n, errno: undefined })
    expect(native.write(writing, Buffer.from('b'))).toBe(-32)
  })

  it('drains no more than its source holds, even when a writer never stops', async () => {
    const [source, writing] = open('pipe')
    const [target, reading] = open('socketPair')
    const endless = spawn('yes', { stdio: ['ignore', writing, 'ignore'] })
    const ended = once(endless, 'exit')
    native.close(writing)
    const drain = new AbortController()
    const result = streams.relay(source, target, { drain: drain.signal })
    await streams.readable(kept(reading))
    drain.abort()
    const received = await readToEnd(reading)
    expect(received.toString()).toMatch(/^(y\n)*y?$/)
    expect(await result).toEqual({ bytes: BigInt(received.length), errno: undefined })
    expect(await ended).toEqual([null, 'SIGPIPE'])
  })

  it('drains from the start when the request came before', async () => {
    const [source, writing] = open('pipe')
    const [target, reading] = open('socketPair')
    const data = pattern(60_000)
    await writeAll(kept(writing), data)
    const result = streams.relay(source, target, { drain: AbortSignal.abort() })
    expect((await readToEnd(kept(reading), 1000)).equals(data)).toBe(true)
    expect(await result).toEqual({ bytes: 60_000n, errno: undefined })
  })

  it('stops although the reader does not read', async () => {
    const stop = new AbortController()
    const { writing, result } = pipeToSocket({ signal: stop.signal })
    const writeFails = expect(writeAll(writing, pattern(TOO_MUCH))).rejects.toMatchObject({ errno: 'EPIPE' })
    stop.abort()
    expect((await result).errno).toBe('ECANCELED')
    await writeFails
  })

  it('relays both directions of one file through duplicates, each with an end of its own', async () => {
    const [terminal, user] = open('socketPair')
    kept(terminal)
    kept(user)
    const [input, typing] = open('pipe')
    const [showing, output] = open('pipe')
    kept(typing)
    kept(showing)
    const stop = new AbortController()
    const inputResult = streams.relay(input, streams.duplicate(terminal))
    const outputResult = streams.relay(streams.duplicate(terminal), output, { signal: stop.signal })
    await writeAll(typing, Buffer.from('typed'))
    await streams.readable(user)
    expect(streams.tryRead(user, 10)?.toString()).toBe('typed')
    stop.abort()
    expect(await outputResult).toEqual({ bytes: 0n, errno: 'ECANCELED' })

    await writeAll(user, Buffer.from('shown'))
    expect(streams.tryRead(terminal, 10)?.toString()).toBe('shown')
    await writeAll(typing, Buffer.from(' more'))
    close(typing)
    expect(await inputResult).toEqual({ bytes: 10n, errno: undefined })
    expect((await readToEnd(showing)).length).toBe(0)
  })

  it('sleeps while a reader does not read', async () => {
    // The first relay starts the relay thread; its context switches show its work.
    const stdout = await withNativeInOtherProcess(`
      const { readdirSync, readFileSync } = require('node:fs');
      const threads = () => readdirSync('/proc/self/task');
      const before = threads();
      const [source, writing] = native.pipe();
      const [target, reading] = native.socketPair();
      native.setNonBlocking(writing, true);
      native.relayStart(source, target, -1, 0, 0, -1, 0, -1, -1, (bytes, errno) => console.log("ended with", errno), () => {});
      const started = threads().filter((id) => !before.includes(id));
      const field = (name) =>
        new RegExp('^' + name + ':\\\\s+(\\\\w+)', 'm').exec(readFileSync('/proc/self/task/' + started[0] + '/status', 'utf8'))[1];
      const switches = () => Number(field('voluntary_ctxt_switches')) + Number(field('nonvoluntary_ctxt_switches'));
      // All buffers are full once nothing more can be written and the thread has come to rest.
      let seen;
      do {
        seen = switches();
        while (native.write(writing, Buffer.alloc(65536)) > 0);
      } while (field('State') !== 'S' || switches() !== seen || native.write(writing, Buffer.alloc(1)) > 0);
      for (let each = 0; each < 20; each++) require('node:child_process').spawnSync('true');
      console.log(started.length, field('State'), switches() - seen);
      native.close(reading);`)
    expect(stdout).toBe('1 S 0\nended with 32\n')
  })

  it('moves to and from a pty, and treats its hang-up as EOF', async () => {
    const folder = temporaryFolder()
    const console = linuxConsoles(native, streams).listen(join(folder, 'console.sock'))
    const exited = once(startRuntimeWithPty(join(folder, 'console.sock')), 'exit')
    const master = kept(await console.master(AbortSignal.timeout(10_000)))
    await console.close()

    const [typed, typing] = open('socketPair')
    const [showing, shown] = open('socketPair')
    kept(typing)
    kept(showing)
    const inputResult = streams.relay(typed, streams.duplicate(master))
    const outputResult = streams.relay(streams.duplicate(master), shown)
    await writeAll(typing, Buffer.from('hello\nend\n'))
    expect((await readToEnd(showing)).toString()).toBe('hello\n')
    expect(await outputResult).toEqual({ bytes: 6n, errno: undefined })
    expect(await inputResult).toEqual({ bytes: 10n, errno: 'EPIPE' })
    await exited
  })

  it('relays many streams at once', async () => {
    const relays = Array.from({ length: 50 }, () => pipeToSocket())
    const data = pattern(256 * 1024)
    const received = await Promise.all(
      relays.map(async ({ writing, reading }) => {
        const all = readToEnd(reading)
        await writeAll(writing, data)
        close(writing)
        return await all
      }),
    )
    expect(received.every((bytes) => bytes.equals(data))).toBe(true)
  })

  it('keeps the last bytes of a pipe, also while its reader waits and after its end', async () => {
    const { read, keep } = keeping(1000)
    const { writing, reading, result } = pipeToSocket({ keep })
    expect(read()).toEqual({ totalBytes: 0n, last: Buffer.alloc(0) })
    const data = pattern(4 * 1024 * 1024)
    const written = writeAll(writing, data).then(() => close(writing))
    const received: Buffer[] = []
    for (let bytes = 0; bytes < data.length / 2; bytes += received.at(-1)?.length ?? 0) {
      await streams.readable(reading)
      received.push(streams.tryRead(reading, 100_000) ?? Buffer.alloc(0))
      const { totalBytes, last } = read()
      expect(last.equals(data.subarray(Number(totalBytes) - last.length, Number(totalBytes)))).toBe(true)
      expect(last.length).toBe(Math.min(1000, Number(totalBytes)))
    }
    received.push(await readToEnd(reading))
    await written
    expect(Buffer.concat(received).equals(data)).toBe(true)
    expect(await result).toEqual({ bytes: BigInt(data.length), errno: undefined })
    expect(read()).toEqual({ totalBytes: BigInt(data.length), last: data.subarray(-1000) })
  })

  it('has the last bytes that were written at any moment, moved or not', async () => {
    const random = randomNumbers(1)
    const relays = [1, 1000, 65_536, 65_536].map((bytes, index) => {
      const [source, writing] = open('pipe')
      if (index < 3) native.setPipeSize(source, 1024 * 1024)
      const [target, reading] = open('socketPair')
      const { read, keep } = keeping(bytes)
      const result = streams.relay(source, target, { keep })
      const data = pattern(6 * 1024 * 1024)
      return {
        bytes,
        read,
        result,
        data,
        writing: kept(writing),
        reading: kept(reading),
        written: 0,
        taken: 0,
      }
    })
    while (relays.some(({ written, data }) => written < data.length)) {
      for (const relay of relays) {
        const { data, writing, reading, read, bytes } = relay
        const most = random(2) === 0 ? 200 : 300_000
        const end = relay.written + 1 + random(most)
        relay.written += streams.tryWrite(writing, data.subarray(relay.written, end))
        if (random(3) > 0) relay.taken += streams.tryRead(reading, 1 + random(200_000))?.length ?? 0
        if (random(4) > 0) continue
        const { totalBytes, last } = read()
        expect(totalBytes).toBe(BigInt(relay.written))
        expect(last.equals(data.subarray(Math.max(0, relay.written - bytes), relay.written))).toBe(true)
      }
    }
    for (const { writing, reading, result, read, data, bytes, taken } of relays) {
      close(writing)
      expect((await readToEnd(reading)).equals(data.subarray(taken))).toBe(true)
      expect(await result).toEqual({ bytes: BigInt(data.length), errno: undefined })
      expect(read()).toEqual({ totalBytes: BigInt(data.length), last: data.subarray(-bytes) })
    }
  }, 60_000)

  it('keeps the last of more small pieces than can be copied before they are read', async () => {
    const { read, keep } = keeping(1000)
    const { writing, reading, result } = pipeToSocket({ keep })
    let written = ''
    for (let number = 0; number < 200; number++) {
      const piece = `piece ${number}\n`
      await writeAll(writing, Buffer.from(piece))
      await streams.readable(reading)
      expect(streams.tryRead(reading, 100)?.toString()).toBe(piece)
      written += piece
    }
    expect(read()).toEqual({ totalBytes: BigInt(written.length), last: Buffer.from(written.slice(-1000)) })
    close(writing)
    await result
  })

  it.each([
    ['its reader goes', 'EPIPE', (reading: Fd) => close(reading)],
    ['it is stopped', 'ECANCELED', (_: Fd, stop: AbortController) => stop.abort()],
  ])('keeps the last bytes that are not delivered when %s', async (_, errno, end) => {
    const stop = new AbortController()
    const { read, keep } = keeping(65_536)
    const { writing, reading, result } = pipeToSocket({ keep, signal: stop.signal })
    native.setPipeSize(writing, 1024 * 1024)
    const data = pattern(TOO_MUCH)
    let written = streams.tryWrite(writing, data)
    for (let more = written; more > 0; written += more)
      more = streams.tryWrite(writing, data.subarray(written))
    end(reading, stop)
    const { bytes, ...ended } = await result
    expect(ended).toEqual({ errno })
    expect(bytes).toBeLessThan(BigInt(written))
    expect(read()).toEqual({ totalBytes: BigInt(written), last: data.subarray(written - 65_536, written) })
  })

  it('keeps the last bytes of a socket that pass a pipe, fewer than it may', async () => {
    const [source, writing] = open('socketPair')
    const [reading, target] = open('pipe')
    kept(writing)
    kept(reading)
    const { read, keep } = keeping(65_536)
    const result = streams.relay(source, target, { keep })
    const data = pattern(60_000)
    const all = readToEnd(reading)
    await writeAll(writing, data)
    close(writing)
    expect((await all).equals(data)).toBe(true)
    await result
    expect(read()).toEqual({ totalBytes: 60_000n, last: data })
  })

  it('keeps the last bytes of each of many streams apart', async () => {
    const ends = await Promise.all(
      Array.from({ length: 30 }, async (_, index) => {
        const { read, keep } = keeping(index + 1)
        const { writing, reading, result } = pipeToSocket({ keep })
        const all = readToEnd(reading)
        await writeAll(writing, Buffer.alloc(300_000 + index, `${index},`))
        close(writing)
        const expected = (await all).subarray(-(index + 1))
        await result
        return read().last.equals(expected)
      }),
    )
    expect(ends).toEqual(ends.map(() => true))
  })

  it('moves bytes that it cannot copy, and begins anew after them', async () => {
    // Closes the pipe that copies pass through; it follows the process's other descriptors.
    const stdout = await withNativeInOtherProcess(`
      const { readdirSync, readlinkSync } = require('node:fs');
      const pipes = () => readdirSync('/proc/self/fd').map(Number).filter((fd) => {
        try { return readlinkSync('/proc/self/fd/' + fd).startsWith('pipe:'); } catch { return false; }
      });
      const [source, writing] = native.pipe();
      const [target, reading] = native.socketPair();
      const before = pipes();
      const relay = native.relayStart(source, target, -1, 0, 100, -1, 0, -1, -1, (bytes, errno, { totalBytes, last }) => {
        console.log('ended with', errno, bytes, totalBytes, last.length);
      }, () => {});
      const told = () => native.relayTail(relay).last.toString() + native.relayTail(relay).totalBytes;
      native.write(writing, Buffer.from('kept'));
      console.log(native.read(reading, 10).toString());
      while (told() !== 'kept4');
      for (const fd of pipes()) if (!before.includes(fd)) native.close(fd);
      native.write(writing, Buffer.from('lost'));
      console.log(native.read(reading, 10).toString());
      while (told() !== '8');
      native.close(writing);`)
    expect(stdout).toBe('kept\nlost\nended with 0 8n 8n 0\n')
  })

  it('owns nothing when it cannot start', async () => {
    const [source, writing] = open('pipe')
    kept(source)
    kept(writing)
    expect(() => streams.relay(source, 9999)).toThrow(`relay fd ${source} to fd 9999: EBADF`)
    await writeAll(writing, Buffer.from('a'))
    expect(streams.tryRead(source, 10)?.toString()).toBe('a')
  })

  it('leaves the other stream of a connection alone that it lets go', async () => {
    const [connection, host] = open('socketPair')
    const [source, writing] = open('pipe')
    const [reading, target] = open('pipe')
    for (const fd of [host, writing, reading]) kept(fd)
    const totals = streams.memoryFile('totals')
    streams.writeAt(totals, 0, Buffer.alloc(2 * TOTALS_BYTES))
    const started: AttachedRelay[] = []
    const link = (offset: number, detached: () => void) => ({
      ...{ totals: { fd: totals, offset }, outlivesDevice: true, resumes: false, kept: undefined },
      ...{ started: (relay: AttachedRelay) => void started.push(relay), detached },
    })
    const { promise: outputGone, resolve } = Promise.withResolvers<void>()
    const stop = new AbortController()
    const options = { shutsDown: true, signal: stop.signal }
    const output = streams.relay(source, connection, { ...options, link: link(0, resolve) })
    const input = streams.relay(streams.duplicate(connection), target, {
      ...options,
      link: link(TOTALS_BYTES, () => {}),
    })
    started[0]?.detach()
    await outputGone
    await writeAll(host, Buffer.from('input'))
    const read = streams.readable(reading).then(() => streams.tryRead(reading, 10)?.toString())
    expect(await Promise.race([input, read])).toBe('input')
    stop.abort()
    await Promise.all([output, input])
    close(writing)
    close(reading)
    close(totals)
  })
})
