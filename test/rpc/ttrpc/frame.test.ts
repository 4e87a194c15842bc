import { describe, expect, it } from 'vitest'
import {
  allocateFrame,
  FRAME_HEADER_BYTES,
  type FrameHeader,
  FrameReader,
  MAX_FRAME_PAYLOAD_BYTES,
} from '../../../src/rpc/ttrpc/frame.ts'

function frame(payload: Buffer, streamId = 1): Buffer {
  const bytes = allocateFrame({ payloadBytes: payload.length, streamId, type: 1, flags: 0 })
  payload.copy(bytes, FRAME_HEADER_BYTES)
  return bytes
}

interface Collected {
  readonly reader: FrameReader
  readonly frames: { readonly header: FrameHeader; readonly payload: Buffer }[]
  readonly oversized: FrameHeader[]
}

function collect(): Collected {
  const frames: Collected['frames'] = []
  const oversized: FrameHeader[] = []
  const reader = new FrameReader({
    onFrame: (header, payload) => frames.push({ header, payload: Buffer.from(payload) }),
    onOversizedFrame: (header) => oversized.push(header),
  })
  return { reader, frames, oversized }
}

describe('allocateFrame', () => {
  it('writes length, stream id, type and flags in network order', () => {
    const bytes = allocateFrame({ payloadBytes: 0x010203, streamId: 0xfffffffd, type: 2, flags: 4 })
    expect(bytes.subarray(0, 10).toString('hex')).toBe('00010203fffffffd0204')
    expect(bytes).toHaveLength(10 + 0x010203)
  })
})

describe('FrameReader', () => {
  const wire = Buffer.concat([
    frame(Buffer.from('one'), 1),
    frame(Buffer.alloc(0), 3),
    frame(Buffer.alloc(1000, 'x'), 0xffffffff),
  ])

  it.each([1, 2, 3, 7, 9, 10, 11, 13, 64, 2000])('reads frames that arrive in pieces of %i bytes', (size) => {
    const { reader, frames } = collect()
    for (let offset = 0; offset < wire.length; offset += size)
      reader.push(wire.subarray(offset, offset + size))
    expect(frames.map(({ header }) => [header.streamId, header.payloadBytes])).toEqual([
      [1, 3],
      [3, 0],
      [0xffffffff, 1000],
    ])
    expect(frames.map(({ payload }) => payload.toString())).toEqual(['one', '', 'x'.repeat(1000)])
  })

  it('accepts the largest frame', () => {
    const { reader, frames, oversized } = collect()
    const payload = Buffer.alloc(MAX_FRAME_PAYLOAD_BYTES, 7)
    const bytes = frame(payload)
    for (let offset = 0; offset < bytes.length; offset += 65536)
      reader.push(bytes.subarray(offset, offset + 65536))
    expect(frames[0]?.payload.equals(payload)).toBe(true)
    expect(oversized).toEqual([])
  })

  it('skips a larger frame and finds the next one', () => {
    const { reader, frames, oversized } = collect()
    const bytes = Buffer.concat([
      frame(Buffer.alloc(MAX_FRAME_PAYLOAD_BYTES + 1), 5),
      frame(Buffer.from('next'), 7),
    ])
    for (let offset = 0; offset < bytes.length; offset += 65537)
      reader.push(bytes.subarray(offset, offset + 65537))
    expect(oversized.map(({ streamId }) => streamId)).toEqual([5])
    expect(frames.map(({ payload }) => payload.toString())).toEqual(['next'])
  })

  it('holds no more than has arrived, whatever length the header claims', () => {
    const header = Buffer.from('00400000000000010100', 'hex')
    const before = process.memoryUsage().arrayBuffers
    const readers = Array.from({ length: 100 }, () => collect().reader)
    for (const reader of readers) reader.push(Buffer.concat([header, Buffer.alloc(10)]))
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(8 * 1024 * 1024)
  })

  it('keeps no bytes of a frame that is too large', () => {
    const { reader, oversized } = collect()
    reader.push(Buffer.from('10000000000000010100', 'hex'))
    const before = process.memoryUsage().arrayBuffers
    const piece = Buffer.alloc(65536)
    for (let sent = 0; sent < 0x10000000; sent += piece.length) reader.push(piece)
    expect(oversized).toHaveLength(1)
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(8 * 1024 * 1024)
  })
})
