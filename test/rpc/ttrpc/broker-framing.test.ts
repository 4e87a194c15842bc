import { once } from 'node:events'
import { BinaryWriter } from '@bufbuild/protobuf/wire'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { StatusCode } from '../../../src/base/errors.ts'
import { LIMITS, Totals } from '../../../src/rpc/limits.ts'
import type { Method } from '../../../src/rpc/method.ts'
import { BrokerFraming } from '../../../src/rpc/ttrpc/broker-framing.ts'
import {
  decodeEnvelope,
  EnvelopeKind,
  encodeEnvelope,
  FRAME_IN_FILE,
  IN_FILE,
  KEEP,
  NO_ROOM,
} from '../../../src/rpc/ttrpc/envelope.ts'
import { allocateFrame, FrameFlag, FrameType } from '../../../src/rpc/ttrpc/frame.ts'
import { TtrpcServerConnection } from '../../../src/rpc/ttrpc/server-connection.ts'
import { GO_REQUEST } from '../../fixtures/ttrpc-frames.ts'
import { FakeClock } from '../../support/fakes/fake-clock.ts'
import { type BrokerData, brokerData, requestFrame, responseIn } from '../../support/rpc/broker-data.ts'
import { forgetfulLink } from '../../support/rpc/brokered-pair.ts'
import { aborted, echo, type HeldMethod, heldMethod, tableOf, turns } from '../../support/rpc/fake-methods.ts'
import { MemoryFiles } from '../../support/rpc/memory-files.ts'
import { type SocketPair, socketPair } from '../../support/rpc/socket-pair.ts'
import { connectionTotals } from '../../support/rpc/totals.ts'

const MIB = 1024 * 1024
const { request, oversized, written, dropped, answer, nothing, confirm } = EnvelopeKind

describe('an envelope', () => {
  it('has the layout of native/broker/protocol.h', () => {
    const envelope = { kind: 1, flags: 2, number: 0x10000000003n, ageNs: 4, frameBytes: 5 }
    const bytes = encodeEnvelope(envelope)
    expect(bytes.toString('hex')).toBe(
      '01000000' + '02000000' + '0300000000010000' + '0400000000000000' + '05000000' + '00000000',
    )
    expect(decodeEnvelope(Buffer.concat([Buffer.alloc(3), bytes]), 3)).toEqual(envelope)
  })
})

describe('a TtrpcServerConnection and its framing', () => {
  let sockets: SocketPair
  let broker: BrokerData
  let held: HeldMethod
  let told: string[]
  let clock: FakeClock
  let connection: TtrpcServerConnection
  let files: MemoryFiles

  beforeEach(async () => {
    files = new MemoryFiles()
    sockets = await socketPair()
    held = heldMethod()
    told = []
    const asked: Method = async (payload) => ({
      ok: true,
      payload,
      delivered: (isWritten) => void told.push(`delivered ${isWritten}`),
    })
    clock = new FakeClock()
    const total = { ...LIMITS.total, bytes: { limit: 3 * MIB, reserve: MIB } }
    connection = new TtrpcServerConnection(sockets.server, {
      methods: tableOf({
        'test.Echo/Echo': echo,
        'test.Echo/Held': held.method,
        'test.Echo/Asked': asked,
        'test.Echo/Stored': { serve: held.method, share: 'reserved', dataField: 2 },
      }),
      files,
      peer: 'vsock 2:77',
      startTimer: (ms, expired) => clock.startTimer(ms, expired),
      link: {
        confirm: (number) => void told.push(`confirm ${number}`),
        settled: (number, isWritten) => void told.push(`settled ${number} ${isWritten}`),
        refused: () => {},
        late: () => void told.push('late'),
        fail: (reason) => void told.push(`fail ${reason}`),
      },
      totals: connectionTotals(new Totals({ ...LIMITS, total })),
    })
    connection.start()
    broker = brokerData(sockets.client)
  })

  afterEach(() => sockets.close())

  it('answers a request under its number', async () => {
    broker.send(request, 5n, GO_REQUEST)
    broker.send(request, 6n, requestFrame(3, 'Echo', { payload: Buffer.from('hello') }))
    const [first, second] = [await broker.next(), await broker.next()]
    expect(first).toMatchObject({ kind: answer, flags: 0, number: 5n })
    expect(second).toMatchObject({ kind: answer, number: 6n })
    expect(responseIn(second)).toMatchObject({ streamId: 3, code: 0 })
  })

  it('reads envelopes byte by byte', async () => {
    const frame = requestFrame(1, 'Echo', { payload: Buffer.from('x') })
    const envelope = { kind: request, flags: 0, number: 9n, ageNs: 0, frameBytes: frame.length }
    for (const byte of [...encodeEnvelope(envelope), ...frame]) {
      sockets.client.write(Uint8Array.of(byte))
      await turns(1)
    }
    expect(await broker.next()).toMatchObject({ kind: answer, number: 9n })
    const header = allocateFrame({ payloadBytes: 5 * MIB, streamId: 3, type: 1, flags: 0 }, 5 * MIB)
    for (const byte of [...encodeEnvelope({ ...envelope, kind: oversized, frameBytes: 10 }), ...header]) {
      sockets.client.write(Uint8Array.of(byte))
      await turns(1)
    }
    expect(responseIn(await broker.next()).message).toBe('message of 5242880 bytes is larger than 4194304')
  })

  it('carries requests and answers of half a megabyte', async () => {
    const payload = Buffer.alloc(MIB / 2, 'x')
    broker.send(request, 1n, requestFrame(1, 'Echo', { payload }))
    expect(payload.equals(responseIn(await broker.next()).payload)).toBe(true)
  })

  describe('a frame in a file', () => {
    const data = Buffer.alloc(70_000, 'd')
    const fields = new BinaryWriter().tag(1, 2).string('name').tag(2, 2).bytes(data).finish()
    const payload = Buffer.from(fields)
    const send = (number: bigint, frame: Buffer, frameBytes = frame.length) => {
      files.add(number, frame)
      const flags = FRAME_IN_FILE
      sockets.client.write(encodeEnvelope({ kind: request, flags, number, ageNs: 0, frameBytes }))
    }

    it('is read whole for a method that takes no data from a file', async () => {
      send(1n, requestFrame(1, 'Echo', { payload }))
      expect(payload.equals(responseIn(await broker.next()).payload)).toBe(true)
      expect(files.open).toBe(0)
    })

    it('keeps the data of a method that takes it from there, until the end of the call', async () => {
      send(1n, requestFrame(1, 'Stored', { payload }))
      const { call, payload: around, answer: end } = await held.next()
      expect(Buffer.from(around)).toEqual(payload.subarray(0, 6))
      expect(call.data?.read()).toEqual(data)
      end({ ok: true, payload: around })
      expect(responseIn(await broker.next())).toMatchObject({ streamId: 1, code: 0 })
      expect([call.data?.place, files.open]).toEqual([undefined, 0])
    })

    it('counts for each 64 KiB in the requests that are served in one turn', async () => {
      const long = Buffer.alloc(MIB - 65_536)
      const envelopes = [1n, 2n, 3n].map((number) => {
        const frame = requestFrame(2 * Number(number) - 1, 'Stored', { payload: long })
        files.add(number, frame)
        const envelope = { kind: request, flags: FRAME_IN_FILE, number, ageNs: 0 }
        return encodeEnvelope({ ...envelope, frameBytes: frame.length })
      })
      sockets.client.write(Buffer.concat(envelopes))
      await held.next()
      expect(held.waiting).toBe(1)
      await held.next()
      expect((await held.next()).call.number).toBe(3n)
    })

    it('is closed when the call is refused, or its client is gone', async () => {
      send(1n, requestFrame(2, 'Stored', { payload }))
      expect(responseIn(await broker.next()).message).toBe('stream id must be odd')
      connection.drain()
      sockets.client.end()
      await turns()
      expect(files.open).toBe(0)
    })

    it('is not missed when the end of the connection has closed it unserved', async () => {
      sockets.server.prependOnceListener('close', () => files.close(files.take(2n) ?? -1))
      sockets.client.cork()
      // More than are served before the event that the socket is closed.
      for (let count = 0; count < 5 * LIMITS.connection.requestsAtOnce; count += 1)
        broker.send(request, 1n, requestFrame(1, 'Held'))
      send(2n, requestFrame(3, 'Stored', { payload }))
      sockets.client.uncork()
      await held.next()
      sockets.server.destroy()
      await once(sockets.server, 'close')
      expect([told, files.open]).toEqual([[], 0])
    })

    it.each([
      [
        'without its file',
        () =>
          sockets.client.write(
            encodeEnvelope({
              kind: request,
              flags: FRAME_IN_FILE,
              number: 1n,
              ageNs: 0,
              frameBytes: 80_000,
            }),
          ),
        'request 1: no file',
      ],
      [
        'of another length',
        () => send(1n, requestFrame(1, 'Stored', { payload }), 70_000),
        'request 1: its lengths differ',
      ],
    ])('%s breaks the protocol', async (_, sends, reason) => {
      sends()
      while (told.length === 0) await turns(1)
      expect([told, files.open]).toEqual([[`fail ${reason}`], 0])
    })
  })

  it.each([0, 1])('passes on whether the previous agent had the request: flag %i', async (flags) => {
    broker.send(request, 1n, requestFrame(1, 'Held'), { flags })
    expect((await held.next()).call.sentBefore).toBe(flags === 1)
  })

  it('takes the age of a request off its time, and passes both on', async () => {
    const frame = requestFrame(1, 'Held', { timeoutNano: 3_000_000_000n })
    broker.send(request, 1n, frame, { ageNs: 2_500_000_000 })
    expect((await held.next()).call).toMatchObject({ number: 1n, ageMs: 2500, timeoutMs: 500 })
    broker.send(request, 2n, requestFrame(3, 'Held', { timeoutNano: 2_000_000_000n }), {
      ageNs: 2_500_000_000,
    })
    expect((await held.next()).call).toMatchObject({ number: 2n, timeoutMs: 0 })
    broker.send(request, 3n, requestFrame(5, 'Held'), { ageNs: 2_500_000_000 })
    expect((await held.next()).call).toMatchObject({ number: 3n, timeoutMs: undefined })
  })

  it('has the broker report the delivery of an answer whose method asks for it, and then confirms it', async () => {
    broker.send(request, 1n, requestFrame(1, 'Asked'))
    broker.send(request, 2n, requestFrame(3, 'Asked'))
    expect(await broker.next()).toMatchObject({ number: 1n, flags: KEEP })
    expect(await broker.next()).toMatchObject({ number: 2n, flags: KEEP })
    expect(told).toEqual([])
    broker.send(written, 1n)
    broker.send(dropped, 2n)
    while (told.length < 2) await turns(1)
    expect(told).toEqual(['delivered true', 'delivered false'])
    clock.advance(20)
    expect(await broker.next()).toMatchObject({ kind: confirm, number: 1n })
    expect(await broker.next()).toMatchObject({ kind: confirm, number: 2n })
  })

  it('confirms with the next answer, or after 20 ms, or once 64 wait', async () => {
    const asked = async (number: bigint) => {
      broker.send(request, number, requestFrame(Number(2n * number) - 1, 'Asked'))
      let next = await broker.next()
      const before: bigint[] = []
      for (; next.kind === confirm; next = await broker.next()) before.push(next.number)
      broker.send(written, number)
      return before
    }
    expect(await asked(1n)).toEqual([])
    expect(await asked(2n)).toEqual([1n])
    while (told.length < 2) await turns(1)
    expect(clock.sleeping).toBe(1)
    clock.advance(20)
    expect(await broker.next()).toMatchObject({ kind: confirm, number: 2n })
    const numbers = Array.from({ length: 64 }, (_, index) => BigInt(index + 3))
    for (const number of numbers) broker.send(request, number, requestFrame(Number(2n * number) - 1, 'Asked'))
    for (const number of numbers) expect(await broker.next()).toMatchObject({ kind: answer, number })
    for (const number of numbers) broker.send(written, number)
    for (const number of numbers) expect(await broker.next()).toMatchObject({ kind: confirm, number })
    expect(clock.sleeping).toBe(0)
  })

  it('ends the calls at a hang-up, when all answers count as dropped whose delivery was not told before', async () => {
    for (const number of [1n, 2n, 3n]) {
      broker.send(request, number, requestFrame(Number(2n * number) - 1, 'Asked'))
      await broker.next()
    }
    broker.send(request, 4n, requestFrame(7, 'Held'))
    const { call } = await held.next()
    broker.send(written, 2n)
    sockets.client.end()
    await aborted(call.hangup)
    expect(told).toEqual(['delivered true', 'delivered false', 'delivered false'])
    expect(await broker.next()).toMatchObject({ kind: confirm, number: 2n })
    await expect(broker.next()).rejects.toThrow('the agent has closed')
  })

  it('reads what the broker has sent before a hang-up, even when much waits to be served', async () => {
    broker.send(request, 1n, requestFrame(1, 'Asked'))
    await broker.next()
    for (let count = 0; count < 100; count += 1) broker.send(request, 2n, requestFrame(3, 'Echo'))
    broker.send(written, 1n)
    sockets.client.end()
    while (told.length === 0) await turns(1)
    expect(told).toEqual(['delivered true'])
  })

  it('passes on the delivery of an answer of an earlier agent', async () => {
    broker.send(written, 1n)
    broker.send(dropped, 2n)
    while (told.length < 2) await turns(1)
    expect(told).toEqual(['settled 1 true', 'settled 2 false'])
  })

  it('says which frames have no answer: an end of stream, and a call that data cancels', async () => {
    const data = { payloadBytes: 0, type: FrameType.data, flags: FrameFlag.remoteClosed }
    broker.send(request, 1n, allocateFrame({ ...data, streamId: 1 }))
    expect(await broker.next()).toMatchObject({ kind: nothing, number: 1n, frameBytes: 0 })
    broker.send(request, 2n, requestFrame(3, 'Held'))
    const { call, answer: answerHeld } = await held.next()
    broker.send(request, 3n, allocateFrame({ ...data, streamId: 3, flags: 0 }))
    expect(await broker.next()).toMatchObject({ kind: nothing, number: 2n })
    expect(responseIn(await broker.next())).toMatchObject({ streamId: 3, code: StatusCode.INVALID_ARGUMENT })
    await aborted(call.hangup)
    answerHeld({ ok: true, payload: Buffer.alloc(0) })
    broker.send(request, 4n, requestFrame(5, 'Echo'))
    expect(await broker.next()).toMatchObject({ number: 4n })
  })

  it('refuses an oversized frame of which only the header came, and a frame without room', async () => {
    const header = allocateFrame({ payloadBytes: 5 * MIB, streamId: 1, type: 1, flags: 0 }, 5 * MIB)
    broker.send(oversized, 1n, header)
    const refusal = await broker.next()
    expect(refusal).toMatchObject({ kind: answer, number: 1n })
    expect(responseIn(refusal)).toMatchObject({ streamId: 1, code: StatusCode.RESOURCE_EXHAUSTED })
    broker.send(oversized, 3n, header, { flags: NO_ROOM })
    expect(responseIn(await broker.next()).message).toBe('the broker has no room for the request')
    broker.send(request, 2n, requestFrame(3, 'Echo', { payload: Buffer.alloc(3 * MIB) }))
    const second = await broker.next()
    expect(second.number).toBe(2n)
    expect(responseIn(second)).toMatchObject({ streamId: 3, code: StatusCode.RESOURCE_EXHAUSTED })
  })

  it('drains: answers what is open, then ends', async () => {
    broker.send(request, 1n, requestFrame(1, 'Held'))
    const { answer: answerHeld } = await held.next()
    connection.drain()
    answerHeld({ ok: true, payload: Buffer.alloc(0) })
    expect(await broker.next()).toMatchObject({ kind: answer, number: 1n })
    await expect(broker.next()).rejects.toThrow('the agent has closed')
  })

  const echoFrame = requestFrame(1, 'Echo')
  it.each([
    ['an unknown kind', 6, echoFrame, 'envelope of kind 6, want 1 to 5'],
    ['a frame that is too short', request, Buffer.alloc(9), 'request 1: frame of 9 bytes'],
    [
      'a frame shorter than its header says',
      request,
      echoFrame.subarray(0, -1),
      'request 1: its lengths differ',
    ],
    [
      'a frame longer than its header says',
      request,
      Buffer.concat([echoFrame, echoFrame]),
      'request 1: its lengths differ',
    ],
    [
      'more of an oversized frame than its header',
      oversized,
      Buffer.alloc(11),
      'request 1: frame of 11 bytes',
    ],
  ])('reports %s, and reads nothing more', async (_, kind, frame, reason) => {
    broker.send(kind, 1n, frame)
    while (told.length === 0) await turns(1)
    broker.send(request, 2n, requestFrame(3, 'Held'))
    await turns()
    expect(told).toEqual([`fail ${reason}`])
    expect(held.waiting).toBe(0)
  })
})

describe('BrokerFraming with a way past the stream', () => {
  let sent: { readonly bytes: Buffer; readonly fd: number | undefined }[]
  let written: Buffer[]
  let waiting: number
  let taken: number
  let clock: FakeClock
  let framing: BrokerFraming
  const told: string[] = []

  beforeEach(() => {
    sent = []
    written = []
    waiting = 0
    taken = Number.POSITIVE_INFINITY
    told.length = 0
    const socket = {
      writable: true,
      get writableLength() {
        return waiting
      },
      write: (bytes: Buffer) => written.push(bytes) > 0,
      cork: () => {},
      uncork: () => {},
    }
    const link = { ...forgetfulLink, late: () => told.push('late'), fail: () => {} }
    clock = new FakeClock()
    const startTimer = (ms: number, expired: () => void) => clock.startTimer(ms, expired)
    const sendNow = (bytes: Buffer, fd?: number) => {
      const count = Math.min(bytes.length, taken)
      if (count > 0) sent.push({ bytes: bytes.subarray(0, count), fd })
      return count > 0 ? count : -11
    }
    const events = {
      onFrame: () => {},
      onStoredFrame: () => {},
      onRefusedFrame: () => {},
      onHold: () => undefined,
      onRelease: () => {},
      onTaken: () => told.push('taken'),
    }
    framing = new BrokerFraming(socket, events, { link, startTimer, sendNow })
  })

  afterEach(() => framing.flush())

  const FD = 77
  const frame = Buffer.from('frame')
  const stored = (length: number) => ({
    length,
    place: { fd: FD, offset: 2 ** 30 },
    read: () => Buffer.alloc(length, 'x'),
  })
  function send(number: bigint, bulk?: ReturnType<typeof stored>): void {
    framing.send({
      arrival: { number, ageMs: 0, sentBefore: false },
      ...{ frame, bulk },
      delivered: (isWritten) => told.push(`${number} ${isWritten}`),
    })
  }
  const outcome = (kind: number, number: bigint) =>
    framing.push(encodeEnvelope({ kind, flags: 0, number, ageNs: 0, frameBytes: 0 }))

  it('reports an answer without an outcome for 30 s, again and again', () => {
    const times = () => told.filter((each) => each === 'late').length
    send(1n)
    clock.advance(20_000)
    send(2n)
    outcome(EnvelopeKind.written, 1n)
    // The timer began with the first answer; the second answer is young.
    clock.advance(10_000)
    clock.advance(29_999)
    expect(times()).toBe(0)
    clock.advance(1)
    expect(times()).toBe(1)
    clock.advance(30_000)
    expect(times()).toBe(2)
    outcome(EnvelopeKind.written, 2n)
    expect(clock.sleeping).toBe(1)
    clock.advance(100_000)
    expect(times()).toBe(2)
  })

  it('sends the answers of one turn together, and 32 KiB of them at once', async () => {
    send(1n)
    send(2n)
    expect([sent.length, framing.unsentBytes]).toEqual([0, 74])
    await turns(1)
    expect(sent.map(({ bytes }) => bytes.length)).toEqual([74])
    expect([told, framing.unsentBytes]).toEqual([['taken'], 0])
    for (let number = 3n; number < 900n; number += 1n) send(number)
    expect(sent.map(({ bytes }) => bytes.length)).toEqual([74, 886 * 37])
  })

  it('sends stored bytes as a place in their file', () => {
    send(1n)
    send(2n, stored(5000))
    expect(written).toEqual([])
    const head = { kind: answer, flags: KEEP, number: 1n, ageNs: 0, frameBytes: 5 }
    const inFile = {
      ...{ ...head, flags: KEEP | IN_FILE, number: 2n, ageNs: 2 ** 30, frameBytes: 5005 },
      fileBytes: 5000,
    }
    expect(sent).toEqual([
      { bytes: Buffer.concat([encodeEnvelope(head), frame]), fd: undefined },
      { bytes: Buffer.concat([encodeEnvelope(inFile), frame]), fd: FD },
    ])
    outcome(EnvelopeKind.written, 2n)
    outcome(dropped, 1n)
    expect(told).toEqual(['taken', '2 true', '1 false'])
  })

  it('writes to the stream while that is not empty, and what the kernel does not take', () => {
    waiting = 1
    send(1n, stored(5000))
    expect(Buffer.concat(written)).toHaveLength(32 + 5 + 5000)
    waiting = 0
    taken = 0
    send(2n)
    framing.flush()
    taken = 30
    send(3n, stored(5000))
    expect(Buffer.concat(written)).toHaveLength(32 + 5 + 5000 + 32 + 5 + 7)
    expect(sent.map(({ bytes, fd }) => [bytes.length, fd])).toEqual([[30, FD]])
  })

  it('leaves 4 MiB of undelivered answers in files, or one', () => {
    const isInFile = () => sent.some(({ fd }) => fd === FD)
    const sendStored = (number: bigint, length: number) => {
      sent = []
      send(number, stored(length))
      return isInFile()
    }
    expect([sendStored(1n, 2 ** 23), sendStored(2n, 4096)]).toEqual([true, false])
    outcome(EnvelopeKind.written, 1n)
    expect([sendStored(3n, 2 ** 21), sendStored(4n, 2 ** 21), sendStored(5n, 4096)]).toEqual([
      ...[true, true, false],
    ])
    outcome(dropped, 3n)
    expect(sendStored(6n, 4096)).toBe(true)
  })

  it('confirms ahead of an answer in a file, also when that goes through the stream', () => {
    send(1n)
    framing.flush()
    outcome(EnvelopeKind.written, 1n)
    taken = 0
    send(2n, stored(5000))
    expect(decodeEnvelope(written[0] ?? Buffer.alloc(0), 0)).toMatchObject({ kind: confirm, number: 1n })
    taken = Number.POSITIVE_INFINITY
    outcome(EnvelopeKind.written, 2n)
    send(3n, stored(5000))
    const last = sent.at(-1)
    expect(decodeEnvelope(last?.bytes ?? Buffer.alloc(0), 0)).toMatchObject({ kind: confirm, number: 2n })
    expect(last?.fd).toBe(FD)
  })
})
