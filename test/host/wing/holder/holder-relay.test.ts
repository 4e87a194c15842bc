import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import { loadAddon } from '../../../../src/host/migration/bulk/sockets.ts'
import { unwrap } from '../../../../src/os/errors.ts'
import type { Native } from '../../../../src/os/native.ts'
import { handleOf, SocketHandles } from '../../../../src/os/sockets/socket-handles.ts'
import { readAll, readBytes, TestHolders } from '../../../support/host/test-holder.ts'

const holders = new TestHolders()

let native: Native
let handles: SocketHandles

beforeAll(async () => {
  native = await loadAddon()
  handles = new SocketHandles(native)
})

/** What a server of NBD sends first, and its answer to STARTTLS: that TLS begins, or not. */
const greeting = Buffer.from('NBDMAGICIHAVEOPT\0\x03', 'latin1')
const reply = (type: number, text = '') =>
  Buffer.concat([
    Buffer.from('0003e889045565a900000005', 'hex'),
    number(type),
    number(text.length),
    Buffer.from(text),
  ])
const ACK = reply(1)

function number(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

function record(length: number): Buffer {
  const bytes = Buffer.alloc(5 + length, length)
  bytes.set([23, 3, 3, length >> 8, length & 255])
  return bytes
}

/** Two ends of TCP. */
async function wired() {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const wire = connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port })
  wire.pause()
  await once(wire, 'connect')
  const [peer]: Socket[] = await accepted
  if (peer === undefined) throw new Error('no connection')
  peer.on('error', () => {})
  onTestFinished(() => {
    for (const socket of [wire, peer]) socket.destroy()
    server.close()
  })
  return { wire, peer }
}

/** A relay to `wire`, and what QEMU has of it. */
async function relayTo(holder: HolderClient, wire: Socket): Promise<Socket> {
  const [own, near] = unwrap('open', 'a socket pair', native.socketPair())
  await holder.relay({ near, wire: handleOf(wire)?.fd ?? -1 }, native)
  native.close(near)
  const qemu = handles.socket(own)
  onTestFinished(() => void qemu.destroy())
  return qemu.on('error', () => {})
}

/** A relay between a server of TCP, and what QEMU has. The daemon has the wire no more. */
async function relayed(holder: HolderClient) {
  const { wire, peer } = await wired()
  const qemu = await relayTo(holder, wire)
  wire.destroy()
  return { peer, qemu }
}

const descriptors = ({ pid }: HolderClient) => readdirSync(`/proc/${pid}/fd`).length

describe('holder: a relay', () => {
  it('passes all that both say, also when the reader is slow', async () => {
    const { peer, qemu } = await relayed(await holders.start())
    const records = Array.from({ length: 400 }, (_, index) => record((index * 977) % 16_641))
    const sent = Buffer.concat([greeting, ACK, ...records])
    peer.write(sent)
    const upwards = Buffer.alloc(5_000_000, 'upwards')
    qemu.write(upwards)
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect((await readBytes(peer, upwards.length)).equals(upwards)).toBe(true)
    expect((await readBytes(qemu, sent.length)).equals(sent)).toBe(true)
  })

  it('passes records whole or not at all, and takes what comes after the end', async () => {
    const holder = await holders.start()
    const sent = Buffer.concat([greeting, ACK, record(155), record(1), record(443), record(69)])
    const ends = [0, 18, 38, 198, 204, 652, sent.length]
    for (let cut = 0; cut <= sent.length; cut += cut < 45 ? 1 : 23) {
      const { peer, qemu } = await relayed(holder)
      peer.end(sent.subarray(0, cut))
      const got = await readAll(qemu)
      expect(got.length, `cut at ${cut}`).toBe(ends.findLast((end) => end <= cut))
      // As the last records of a handshake, whose reader is gone.
      peer.destroy()
      for (let count = 0; count < 20; count++) qemu.write('more')
      await new Promise((resolve) => qemu.write('', resolve))
      expect(qemu.destroyed).toBe(false)
      qemu.destroy()
    }
  })

  it('passes everything of a server without TLS, and what is no record', async () => {
    const holder = await holders.start()
    const refused = Buffer.concat([greeting, reply(0x8000_0001, 'not here'), Buffer.from('and more')])
    const wrong = Buffer.concat([greeting, ACK, record(7), Buffer.from('HTTP/1.1 400')])
    for (const sent of [refused, wrong]) {
      const { peer, qemu } = await relayed(holder)
      peer.end(sent)
      expect((await readAll(qemu)).equals(sent)).toBe(true)
    }
  })

  it('ends with either side, and leaves no descriptor', async () => {
    const holder = await holders.start()
    const before = descriptors(holder)
    for (const end of ['qemu', 'both', 'reset'] as const) {
      const { peer, qemu } = await relayed(holder)
      expect(descriptors(holder)).toBe(before + 2)
      peer.write(Buffer.concat([greeting, ACK, record(9).subarray(0, 7)]))
      await readBytes(qemu, 38)
      if (end === 'reset') peer.resetAndDestroy()
      if (end === 'both') peer.end()
      if (end !== 'qemu') expect((await readAll(qemu)).length).toBe(0)
      const closed = end === 'reset' ? undefined : once(peer.resume(), 'close')
      qemu.destroy()
      if (end === 'qemu') peer.end()
      await closed
      await expect.poll(() => descriptors(holder)).toBe(before)
    }
  })

  it('tells the server that QEMU has closed, also when the daemon has the wire, and when that is full', async () => {
    const holder = await holders.start()
    const before = descriptors(holder)
    for (const isFull of [false, true]) {
      const { wire, peer } = await wired()
      const qemu = await relayTo(holder, wire)
      peer.pause()
      if (isFull) qemu.write(Buffer.alloc(20_000_000))
      if (isFull) await expect.poll(() => qemu.bytesWritten).toBeGreaterThan(0)
      qemu.destroy()
      await expect.poll(() => descriptors(holder)).toBe(before)
      await once(peer.resume(), 'end')
    }
  })

  it('is not ended by what was to be told of the relay before', async () => {
    const holder = await holders.start()
    const [first, second] = [await relayed(holder), await wired()]
    process.kill(holder.pid, 'SIGSTOP')
    first.peer.write(greeting)
    const begun = relayTo(holder, second.wire)
    await new Promise((resolve) => setTimeout(resolve, 20))
    first.qemu.destroy()
    await new Promise((resolve) => setTimeout(resolve, 20))
    process.kill(holder.pid, 'SIGCONT')
    const qemu = await begun
    second.peer.write(greeting)
    expect((await readBytes(qemu, greeting.length)).equals(greeting)).toBe(true)
  })

  it('refuses one without its sockets and one too many, and closes what came with them', async () => {
    const holder = await holders.start()
    const before = descriptors(holder)
    const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
    for (const near of [-1, one])
      await expect(holder.relay({ near, wire: -1 }, native)).rejects.toMatchObject({
        ...{ code: 'INVALID_ARGUMENT', message: /relay: [01] descriptors, want 2$/ },
      })
    expect(descriptors(holder)).toBe(before)
    for (let count = 0; count < 64; count++) await holder.relay({ near: one, wire: other }, native)
    await expect(holder.relay({ near: one, wire: other }, native)).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
    })
    expect(descriptors(holder)).toBe(before + 128)
    native.close(one)
    native.close(other)
  })
})
