import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CopyFileRequest, WriteStreamRequest } from '../../../src/gen/agent.ts'
import { FRAME_HEADER_BYTES } from '../../../src/rpc/ttrpc/frame.ts'
import { decodeRequest, encodeRequestFrame } from '../../../src/rpc/ttrpc/messages.ts'
import { storedRequest } from '../../../src/rpc/ttrpc/stored-request.ts'
import { MemoryFiles } from '../../support/rpc/memory-files.ts'

const WRITE = 'grpc.AgentService/WriteStdin'
const dataFieldOf = (method: string) => (method === WRITE ? 3 : undefined)

const encoded = (data: Uint8Array, containerId = 'c1', execId = 'e1') =>
  WriteStreamRequest.encode({ containerId, execId, data }).finish()

function frameOf(payload: Uint8Array, method = 'WriteStdin', metadata = {}, timeoutNano = 5n): Buffer {
  return encodeRequestFrame(7, { service: 'grpc.AgentService', method, payload, timeoutNano }, metadata)
}

function split(frame: Buffer) {
  const files = new MemoryFiles()
  const fd = files.add(1n, frame)
  return { files, fd, stored: storedRequest(files, { fd, frameBytes: frame.length }, dataFieldOf) }
}

describe('a request in a file', () => {
  it('is what the decoder of a whole frame gives, with the data apart', () => {
    const texts = fc.string({ maxLength: 200 })
    const cases = fc.record({
      data: fc.uint8Array({ minLength: 1, maxLength: 20_000 }),
      ids: fc.tuple(texts, texts),
      timeoutNano: fc.bigInt(0n, 2n ** 62n),
      metadata: fc.dictionary(texts, texts, { maxKeys: 4 }),
    })
    fc.assert(
      fc.property(cases, ({ data, ids, timeoutNano, metadata }) => {
        const frame = frameOf(encoded(data, ...ids), 'WriteStdin', metadata, timeoutNano)
        const { stored } = split(frame)
        const whole = decodeRequest(frame.subarray(FRAME_HEADER_BYTES))
        const { request } = stored ?? {}
        expect({ ...request, payload: whole.payload }).toEqual(whole)
        const payload = WriteStreamRequest.decode(request?.payload ?? new Uint8Array(0))
        expect(payload).toMatchObject({ containerId: ids[0], execId: ids[1], data: new Uint8Array(0) })
        expect(Buffer.from(stored?.data.read() ?? []).equals(data)).toBe(true)
        expect(stored?.data.length).toBe(data.length)
      }),
      { numRuns: 300 },
    )
  })

  it('gives its place until it is closed', () => {
    const { files, fd, stored } = split(frameOf(encoded(Buffer.from('data'))))
    const { offset = 0 } = stored?.data.place ?? {}
    expect(files.read(fd, offset, 4).toString()).toBe('data')
    stored?.close()
    stored?.close()
    expect([stored?.data.place, files.open]).toEqual([undefined, 0])
  })

  const data = Buffer.alloc(5000, 'x')
  const later = (payload: Uint8Array, more: Uint8Array) => Buffer.concat([payload, more])
  const outer = (payload: Uint8Array, ...more: Uint8Array[]) => {
    const frame = Buffer.concat([frameOf(payload), ...more])
    frame.writeUInt32BE(frame.length - FRAME_HEADER_BYTES, 0)
    return frame
  }
  it.each([
    [
      'of another method',
      frameOf(CopyFileRequest.encode(CopyFileRequest.create({ data })).finish(), 'CopyFile'),
    ],
    ['with a field behind the data', frameOf(later(encoded(data), encoded(Buffer.alloc(0), 'other')))],
    ['with its data twice', frameOf(later(encoded(data), encoded(data, '', '')))],
    ['with two payloads', outer(encoded(data), Buffer.from('1a0161', 'hex'))],
    ['with another method behind it', outer(encoded(data), Buffer.from('120161', 'hex'))],
    ['with another service behind it', outer(encoded(data), Buffer.from('0a0161', 'hex'))],
    ['with something else behind it', outer(encoded(data), Buffer.from('0a05', 'hex'))],
    ['without data', frameOf(encoded(Buffer.alloc(0), 'c'.repeat(6000)))],
    ['whose ids are long', frameOf(encoded(data, 'c'.repeat(6000)))],
    ['with long metadata', frameOf(encoded(data), 'WriteStdin', { key: 'v'.repeat(5000) })],
    ['whose data is longer than the frame', frameOf(encoded(data).subarray(0, 3000))],
    ['that is cut', frameOf(encoded(data)).subarray(0, 200)],
    ['that is no message', Buffer.alloc(8000, 0xff)],
    ['of two-byte fields', frameOf(Buffer.alloc(8000, Buffer.from('0a00', 'hex')))],
  ])('%s must be read whole', (_, frame) => {
    expect(split(frame).stored).toBeUndefined()
  })
})
