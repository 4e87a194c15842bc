import { openSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { jsonLogger, silentLogger } from '../../../src/base/log.ts'
import { unwrap } from '../../../src/os/errors.ts'
import type { Files } from '../../../src/os/files/files.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import {
  decodeStoreResult,
  ONLY_REFUSAL,
  RECORD_BYTES,
  RecordKind,
} from '../../../src/os/supervisor/channel-record.ts'
import { ChannelWriter } from '../../../src/os/supervisor/channel-writer.ts'
import { VminitStore } from '../../../src/os/supervisor/descriptor-store.ts'
import { ExitChannel } from '../../../src/os/supervisor/exit-channel.ts'
import { VminitFreezer } from '../../../src/os/supervisor/freezer.ts'
import { connectVminit } from '../../../src/os/supervisor/vminit.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { realNative } from '../../support/os/real-native.ts'
import { isPending } from '../../support/pending.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const { EAGAIN } = constants.errno

let native: Native
beforeAll(async () => {
  native = await realNative()
})

function openChannel(files: Files = linuxFiles(native)) {
  const [parentEnd, childEnd] = unwrap('open', 'a socket pair', native.socketPair())
  const clock = new FakeClock()
  const streams = linuxStreams(native)
  const lines: string[] = []
  const log = jsonLogger({ sink: (line) => lines.push(line), level: () => 'info', version: '0', pid: 1 })
  native.setNonBlocking(parentEnd, true)
  const writer = new ChannelWriter(native, streams, parentEnd)
  const descriptors = new VminitStore({ writer, inherited: new Map([['service-1', 77]]), log })
  const channel = new ExitChannel({
    fd: parentEnd,
    streams,
    files,
    writer,
    descriptors,
    freezer: new VminitFreezer({ native, writer, mountOf: () => 0 }),
    clock,
    log,
  })
  const ended = channel.receive()
  return { channel, descriptors, clock, lines, ended, vminit: childEnd }
}

function record(
  kind: number,
  fields: { pid?: number; status?: number; atNs?: bigint; sequence?: bigint },
): Buffer {
  const bytes = Buffer.alloc(RECORD_BYTES)
  bytes.writeUInt32LE(2, 0)
  bytes.writeUInt32LE(kind, 4)
  bytes.writeInt32LE(fields.pid ?? 0, 8)
  bytes.writeInt32LE(fields.status ?? 0, 12)
  bytes.writeBigUInt64LE(fields.atNs ?? 2_000_000_000n, 16)
  bytes.writeBigUInt64LE(fields.sequence ?? 1n, 48)
  return bytes
}

function storeResult(name: string, errno: number): Buffer {
  const bytes = record(RecordKind.STORE_RESULT, { atNs: 0n, sequence: 0n })
  bytes.write(name, 8)
  bytes.writeInt32LE(errno, 40)
  return bytes
}

/** Waits for the next commands to vminit, each as its kind and its main field. */
async function commands(vminit: number, count: number): Promise<readonly (readonly [number, number])[]> {
  native.setNonBlocking(vminit, true)
  const received: (readonly [number, number])[] = []
  const receive = () => {
    const bytes = native.read(vminit, (count - received.length) * RECORD_BYTES)
    if (typeof bytes !== 'number') received.push(...commandsIn(bytes))
    return received.length
  }
  await expect.poll(receive).toBe(count)
  return received
}

function commandsIn(bytes: Buffer): readonly (readonly [number, number])[] {
  return Array.from({ length: bytes.length / RECORD_BYTES }, (_, index) => {
    const record = bytes.subarray(index * RECORD_BYTES)
    const kind = record.readUInt32LE(4)
    return [kind, kind === RecordKind.ACK_EXITS ? Number(record.readBigUInt64LE(48)) : record.readInt32LE(8)]
  })
}

/** A pid that no process has: pid_max is at most 4194304. */
const NOBODY = 4194305

describe('ExitChannel', () => {
  it('reports an exit with its code', async () => {
    const { channel, vminit } = openChannel()
    const exit = channel.watch().exitOf(42)
    native.write(vminit, record(RecordKind.EXIT, { pid: 42, status: 7 << 8 }))
    expect(await exit).toMatchObject({ pid: 42, exitCode: 7, signal: undefined, reapedAtNs: 2_000_000_000n })
    native.close(vminit)
  })

  it('assembles a record from pieces and reads many at once', async () => {
    const { channel, vminit } = openChannel()
    const watch = channel.watch()
    const exits = Promise.all([1, 2, 3].map((pid) => watch.exitOf(pid)))
    const bytes = Buffer.concat([1, 2, 3].map((pid) => record(RecordKind.EXIT, { pid, status: pid })))
    native.write(vminit, bytes.subarray(0, 100))
    await watch.exitOf(1)
    native.write(vminit, bytes.subarray(100))
    expect((await exits).map(({ exitCode }) => exitCode)).toEqual([129, 130, 131])
    native.close(vminit)
  })

  it('answers every wait when records were lost', async () => {
    const { channel, clock, lines, vminit } = openChannel()
    const exit = channel.watch().exitOf(NOBODY)
    const living = channel.watch().exitOf(1)
    native.write(vminit, record(RecordKind.OVERFLOW, { sequence: 5n }))
    await expect.poll(() => clock.sleeping).toBe(1)
    clock.advance(1000)
    expect((await exit).exitCode).toBe(255)
    expect(lines.join('')).toContain('"level":"CRIT"')
    native.write(vminit, record(RecordKind.EXIT, { pid: 1, status: 1 << 8 }))
    expect((await living).exitCode).toBe(1)
    native.close(vminit)
  })

  it('uses the record when it arrives after all', async () => {
    const { channel, clock, vminit } = openChannel()
    const exit = channel.watch().exitOf(NOBODY)
    native.write(vminit, record(RecordKind.OVERFLOW, {}))
    await expect.poll(() => clock.sleeping).toBe(1)
    native.write(vminit, record(RecordKind.EXIT, { pid: NOBODY, status: 3 << 8 }))
    expect((await exit).exitCode).toBe(3)
    native.close(vminit)
  })

  it('checks again when a pid is asked for after records were lost', async () => {
    const { channel, clock, lines, vminit } = openChannel()
    const watch = channel.watch()
    native.write(vminit, record(RecordKind.OVERFLOW, {}))
    await expect.poll(() => lines.length).toBe(1)
    const exit = watch.exitOf(NOBODY)
    await expect.poll(() => clock.sleeping).toBe(1)
    clock.advance(1000)
    expect((await exit).exitCode).toBe(255)
    native.close(vminit)
  })

  it('reports a request to stop', async () => {
    const { channel, vminit } = openChannel()
    native.write(vminit, record(RecordKind.SHUTDOWN, { status: 15 }))
    expect(await channel.shutdownRequested).toBe(15)
    native.close(vminit)
  })

  it('skips an unknown record', async () => {
    const { channel, lines, vminit } = openChannel()
    native.write(vminit, record(99, {}))
    native.write(vminit, record(RecordKind.SHUTDOWN, { status: 2 }))
    expect(await channel.shutdownRequested).toBe(2)
    expect(lines.join('')).toContain('record of vminit ignored')
    native.close(vminit)
  })

  it('sends commands', async () => {
    const { channel, vminit } = openChannel()
    await channel.powerOff()
    await channel.endWithAgent()
    const bytes = unwrap('read', 'the channel', native.read(vminit, 1000))
    expect(bytes.length).toBe(2 * RECORD_BYTES)
    expect(bytes.readUInt32LE(4)).toBe(RecordKind.POWER_OFF)
    expect(bytes.readUInt32LE(RECORD_BYTES + 4)).toBe(RecordKind.END_WITH_AGENT)
    native.close(vminit)
  })

  it('keeps and forgets exits', async () => {
    const { channel, vminit } = openChannel()
    channel.keep(42)
    channel.forget(42)
    expect(await commands(vminit, 2)).toEqual([
      [RecordKind.KEEP_EXIT, 42],
      [RecordKind.FORGET_EXIT, 42],
    ])
    native.close(vminit)
  })

  it('adopts processes of the previous agent, whose exits it has kept, and drops the rest once the gate is open', async () => {
    const { channel, vminit } = openChannel()
    for (const pid of [41, 42])
      native.write(vminit, record(RecordKind.EXIT, { pid, status: 3 << 8, sequence: 0n }))
    native.write(vminit, record(RecordKind.EXIT, { pid: 43, status: 4 << 8, sequence: 1n }))
    native.write(vminit, record(RecordKind.BACKLOG_END, {}))
    expect((await channel.adopt(43, 1_000_000_000n)).exitCode).toBe(4)
    expect((await channel.adopt(42, 1_000_000_000n)).exitCode).toBe(3)
    channel.gateOpened()
    // The previous agent may have died before vminit kept the exit.
    expect(await commands(vminit, 4)).toEqual([
      [RecordKind.KEEP_EXIT, 43],
      [RecordKind.KEEP_EXIT, 42],
      [RecordKind.GATE_OPENED, 0],
      [RecordKind.FORGET_EXIT, 41],
    ])
    native.write(vminit, record(RecordKind.EXIT, { pid: 40, sequence: 0n }))
    expect(await commands(vminit, 1)).toEqual([[RecordKind.FORGET_EXIT, 40]])
    native.close(vminit)
  })

  it.each([
    'gone and of which vminit has no record',
    'gone, and not for another whose file cannot be read at once',
  ])('answers 255 for an adopted process that is %s', async (what) => {
    const unreadable = { ...linuxFiles(native), readSmall: async () => [''] }
    const { channel, clock, vminit } = openChannel(what.includes('file') ? unreadable : undefined)
    const lost = channel.adopt(NOBODY, 0n)
    const alive = channel.adopt(process.pid, clock.boottimeNs() + 10n ** 18n)
    const late = channel.adopt(NOBODY + 1, 0n)
    expect(clock.sleeping).toBe(0)
    native.write(vminit, record(RecordKind.BACKLOG_END, {}))
    await expect.poll(() => clock.sleeping).toBe(2)
    native.write(vminit, record(RecordKind.EXIT, { pid: NOBODY + 1, status: 6 << 8, sequence: 0n }))
    clock.advance(1000)
    expect((await lost).exitCode).toBe(255)
    expect((await late).exitCode).toBe(6)
    native.write(vminit, record(RecordKind.EXIT, { pid: process.pid, status: 1 << 8, atNs: 2n * 10n ** 18n }))
    expect((await alive).exitCode).toBe(1)
    native.close(vminit)
  })

  it('acknowledges exits, many at once, that no open watch may ask for', async () => {
    const { channel, clock, vminit } = openChannel()
    const atNs = clock.boottimeNs()
    const exits = (from: number, count: number, atNs: bigint) =>
      Array.from({ length: count }, (_, index) =>
        record(RecordKind.EXIT, { pid: from + index, atNs, sequence: BigInt(from + index) }),
      )
    channel.gateOpened()
    const watch = channel.watch()
    native.write(vminit, Buffer.concat([...exits(1, 100, atNs - 1n), ...exits(101, 100, atNs)]))
    await watch.exitOf(200)
    expect(await commands(vminit, 2)).toEqual([
      [RecordKind.GATE_OPENED, 0],
      [RecordKind.ACK_EXITS, 100],
    ])
    watch.close()
    expect(await commands(vminit, 1)).toEqual([[RecordKind.ACK_EXITS, 200]])
    native.close(vminit)
  })

  it('fails every wait and asks for a stop when vminit is gone', async () => {
    const { channel, ended, vminit } = openChannel()
    const watch = channel.watch()
    const exit = watch.exitOf(42)
    native.close(vminit)
    await expect(exit).rejects.toThrow('vminit is gone')
    await ended
    expect(await channel.shutdownRequested).toBe(0)
    await expect(watch.exitOf(43)).rejects.toThrow('vminit is gone')
    await expect(channel.powerOff()).rejects.toThrow('vminit is gone')
  })
})

describe('connectVminit', () => {
  it('gives each descriptor of the list once', () => {
    const [parentEnd, childEnd] = unwrap('open', 'a socket pair', native.socketPair())
    const log = jsonLogger({ sink: () => {}, level: () => 'info', version: '0', pid: 1 })
    const path = join(temporaryFolder(), 'list')
    writeFileSync(path, 'service-1 77\np1-stdout 78\n')
    const channel = { fd: parentEnd, storedList: openSync(path, 'r') }
    const [streams, files] = [linuxStreams(native), linuxFiles(native)]
    const parts = { native, streams, files, log, clock: new FakeClock(), channel }
    const { descriptors } = connectVminit(parts)
    expect(descriptors.names()).toEqual(['service-1', 'p1-stdout'])
    expect([descriptors.take('service-1'), descriptors.take('service-1')]).toEqual([77, undefined])
    expect(descriptors.names()).toEqual(['p1-stdout'])
    writeFileSync(path, 'service-1=77\n')
    expect(() =>
      connectVminit({ ...parts, channel: { ...channel, storedList: openSync(path, 'r') } }),
    ).toThrow("list of stored descriptors: 'service-1=77', want NAME FD")
    native.close(childEnd)
  })
})

describe('the store of descriptors in vminit', () => {
  it('passes a descriptor under a name', async () => {
    const { descriptors, ended, vminit } = openChannel()
    const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
    const stored = descriptors.store('pipe', writing)
    // The record is read with the descriptor, whose other end receives the bytes written to it.
    const passed = native.receiveFd(vminit)
    native.write(passed, Buffer.from('through it'))
    expect(unwrap('read', 'the pipe', native.read(reading, 100)).toString()).toBe('through it')
    expect(() => descriptors.store('n'.repeat(32), writing)).toThrow(RangeError)
    for (const fd of [reading, writing, passed, vminit]) native.close(fd)
    expect(() => descriptors.store('pipe', 0)).toThrow('store descriptor pipe in vminit: EPIPE')
    await ended
    await expect(stored).rejects.toThrow('vminit is gone')
    await expect(descriptors.remove('pipe')).rejects.toThrow('vminit is gone')
  })

  it('passes several in one message, which is answered only by refusals', async () => {
    const { descriptors, lines, vminit } = openChannel()
    const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
    descriptors.storeAll({ 'p1-stdin': reading, 'p1-stdout': writing })
    const { data, fds } = unwrap('receive', 'a message', native.recvMessage(vminit, 2 * RECORD_BYTES))
    const records = [0, RECORD_BYTES].map((at) => decodeStoreResult(data.subarray(at)))
    expect(records).toEqual([
      { name: 'p1-stdin', errno: ONLY_REFUSAL },
      { name: 'p1-stdout', errno: ONLY_REFUSAL },
    ])
    expect(fds.map((fd) => native.pipeSize(fd) > 0)).toEqual([true, true])
    const removed = descriptors.remove('p1-stdin')
    native.write(vminit, Buffer.concat([storeResult('p1-stdout', 24), storeResult('p1-stdin', 0)]))
    await removed
    expect(JSON.parse(lines.join(''))).toMatchObject({
      msg: 'descriptor not stored',
      name: 'p1-stdout',
      errno: 'EMFILE',
    })
    descriptors.drop('p1-stdout')
    await Promise.resolve()
    const dropped = unwrap('read', 'the commands', native.read(vminit, 10 * RECORD_BYTES))
    expect(decodeStoreResult(dropped.subarray(-RECORD_BYTES))).toEqual({
      name: 'p1-stdout',
      errno: ONLY_REFUSAL,
    })
    for (const fd of [...fds, reading, writing, vminit]) native.close(fd)
  })

  it('knows that vminit is full without its answer', () => {
    const inherited = new Map(Array.from({ length: 8191 }, (_, index) => [`n${index}`, index]))
    const writer = { post: () => {}, sendDescriptors: () => {} }
    const store = new VminitStore({ writer, inherited, log: silentLogger() })
    expect(() => store.storeAll({ one: 0, two: 0 })).toThrow('ENOSPC: the store is full')
    store.drop('n0')
    store.storeAll({ one: 0, two: 0 })
  })

  it('sends the removals of a moment by one write', async () => {
    const { descriptors, vminit } = openChannel()
    native.setNonBlocking(vminit, true)
    const removed = [descriptors.remove('p1-stdin'), descriptors.remove('p1-stdout')]
    expect(native.read(vminit, RECORD_BYTES)).toBe(-EAGAIN)
    await Promise.resolve()
    expect(unwrap('read', 'the commands', native.read(vminit, 10 * RECORD_BYTES))).toHaveLength(
      2 * RECORD_BYTES,
    )
    native.write(vminit, Buffer.concat([storeResult('p1-stdin', 0), storeResult('p1-stdout', 0)]))
    await Promise.all(removed)
    native.close(vminit)
  })

  it('sends nothing to whatever has the number of the channel once vminit is gone', async () => {
    const { descriptors, ended, vminit } = openChannel()
    native.close(vminit)
    await ended
    // One of them gets the number that the channel had.
    const sockets = unwrap('open', 'a socket pair', native.socketPair())
    expect(() => descriptors.store('pipe', 0)).toThrow('vminit is gone')
    for (const socket of sockets) native.setNonBlocking(socket, true)
    expect(sockets.map((socket) => native.read(socket, 100))).toEqual([-EAGAIN, -EAGAIN])
    for (const socket of sockets) native.close(socket)
  })

  it('waits for the answer to each command', async () => {
    const { descriptors, lines, vminit } = openChannel()
    const accepted = descriptors.store('p1-stdin', 0)
    const refused = descriptors.store('p1-stdout', 0)
    const removed = descriptors.remove('p1-stdin')
    native.write(vminit, storeResult('p1-stdin', 0))
    await accepted
    native.write(vminit, storeResult('p1-stdout', 28))
    await expect(refused).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      message: 'store descriptor p1-stdout in vminit: ENOSPC: the store is full',
    })
    expect(lines.join('')).toContain('descriptor not stored')
    expect(await isPending(removed)).toBe(true)
    native.write(vminit, storeResult('p1-stdin', 0))
    await removed
    const never = descriptors.remove('p1-stdout')
    native.write(vminit, storeResult('p1-stdout', 2))
    await never
    native.close(vminit)
  })

  it('sends many commands in their order while vminit is slow', async () => {
    const { channel, vminit } = openChannel()
    const count = 5000
    for (let pid = 1; pid <= count; pid++) channel.keep(pid)
    const expected = Array.from({ length: count }, (_, index) => [RecordKind.KEEP_EXIT, index + 1])
    expect(await commands(vminit, count)).toEqual(expected)
    native.close(vminit)
  })
})
