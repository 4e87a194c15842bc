import { beforeAll, describe, expect, it } from 'vitest'
import { jsonLogger } from '../../../src/base/log.ts'
import { unwrap } from '../../../src/os/errors.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { RECORD_BYTES, RecordKind } from '../../../src/os/supervisor/channel-record.ts'
import { ExitChannel } from '../../../src/os/supervisor/exit-channel.ts'
import { connectVminit } from '../../../src/os/supervisor/vminit.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { realNative } from '../../support/os/real-native.ts'

let native: Native
beforeAll(async () => {
  native = await realNative()
})

/** A channel over a real socket whose other end is vminit's, that is the test's. */
function openChannel() {
  const [parentEnd, childEnd] = unwrap('open', 'a socket pair', native.socketPair())
  const clock = new FakeClock()
  const streams = linuxStreams(native)
  const lines: string[] = []
  const log = jsonLogger({ sink: (line) => lines.push(line), level: () => 'info', version: '0', pid: 1 })
  native.setNonBlocking(parentEnd, true)
  const channel = new ExitChannel({ fd: parentEnd, streams, clock, log })
  const ended = channel.receive()
  return { channel, clock, lines, ended, vminit: childEnd }
}

function record(
  kind: number,
  fields: { pid?: number; status?: number; atNs?: bigint; sequence?: bigint },
): Buffer {
  const bytes = Buffer.alloc(RECORD_BYTES)
  bytes.writeUInt32LE(1, 0)
  bytes.writeUInt32LE(kind, 4)
  bytes.writeInt32LE(fields.pid ?? 0, 8)
  bytes.writeInt32LE(fields.status ?? 0, 12)
  bytes.writeBigUInt64LE(fields.atNs ?? 2_000_000_000n, 16)
  bytes.writeBigUInt64LE(fields.sequence ?? 1n, 48)
  return bytes
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
    await channel.exitWith(9)
    await channel.powerOff()
    await channel.endWithAgent()
    const bytes = unwrap('read', 'the channel', native.read(vminit, 1000))
    expect(bytes.length).toBe(3 * RECORD_BYTES)
    expect([bytes.readUInt32LE(4), bytes.readInt32LE(12)]).toEqual([RecordKind.EXIT_WITH, 9])
    expect(bytes.readUInt32LE(RECORD_BYTES + 4)).toBe(RecordKind.POWER_OFF)
    expect(bytes.readUInt32LE(2 * RECORD_BYTES + 4)).toBe(RecordKind.END_WITH_AGENT)
    native.close(vminit)
  })

  it('fails every wait and asks for a stop when vminit is gone', async () => {
    const { channel, ended, vminit } = openChannel()
    const watch = channel.watch()
    const exit = watch.exitOf(42)
    expect(channel.unavailable).toBeUndefined()
    native.close(vminit)
    await expect(exit).rejects.toThrow('vminit is gone')
    await ended
    expect(await channel.shutdownRequested).toBe(0)
    expect(channel.unavailable).toBe('vminit is gone')
    await expect(watch.exitOf(43)).rejects.toThrow('vminit is gone')
    await expect(channel.powerOff()).rejects.toThrow('vminit is gone')
  })
})

describe('connectVminit', () => {
  it('names the remedy when there is no vminit', async () => {
    const streams = linuxStreams(native)
    const log = jsonLogger({ sink: () => {}, level: () => 'info', version: '0', pid: 1 })
    const parts = { native, streams, log, clock: new FakeClock(), channel: undefined }
    const { exits, supervisor, descriptors } = connectVminit(parts)
    descriptors.store('service', 0)
    expect(descriptors.take('service')).toBeUndefined()
    expect(exits.unavailable).toContain('start it as `vminit -- agent …`')
    expect(() => exits.watch()).toThrow('vminit -- agent')
    await expect(supervisor.powerOff()).rejects.toThrow('vminit -- agent')
    await supervisor.endWithAgent()
  })

  it('passes a descriptor to vminit under a name, and gives each inherited one once', () => {
    const [parentEnd, childEnd] = unwrap('open', 'a socket pair', native.socketPair())
    const [reading, writing] = unwrap('open', 'a pipe', native.pipe())
    const log = jsonLogger({ sink: () => {}, level: () => 'info', version: '0', pid: 1 })
    const channel = { fd: parentEnd, stored: new Map([['service-1', 77]]) }
    const parts = { native, streams: linuxStreams(native), log, clock: new FakeClock(), channel }
    const { descriptors } = connectVminit(parts)
    expect(descriptors.names()).toEqual(['service-1'])
    expect([descriptors.take('service-1'), descriptors.take('service-1')]).toEqual([77, undefined])
    descriptors.store('pipe', writing)
    // The record is read with the descriptor, whose other end receives what is written to it.
    const passed = native.receiveFd(childEnd)
    native.write(passed, Buffer.from('through it'))
    expect(unwrap('read', 'the pipe', native.read(reading, 100)).toString()).toBe('through it')
    expect(() => descriptors.store('n'.repeat(32), writing)).toThrow(RangeError)
    for (const fd of [reading, writing, passed, childEnd]) native.close(fd)
    expect(() => descriptors.store('pipe', 0)).toThrow('store descriptor pipe in vminit: EPIPE')
  })
})
