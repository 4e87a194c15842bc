import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { describe, expect, it } from 'vitest'
import { CreateContainerRequest, MemHotplugByProbeRequest, WriteStreamRequest } from '../../src/gen/agent.ts'
import { countElements } from '../../src/rpc/count-elements.ts'
import { LIMITS } from '../../src/rpc/limits.ts'

const CREATE = 'grpc.CreateContainerRequest'

describe('countElements', () => {
  it('passes a specification of some thousand elements', () => {
    const Env = Array.from({ length: 20_000 }, (_, index) => `VARIABLE_${index}=value`)
    const request = CreateContainerRequest.fromPartial({ OCI: { Process: { Env } } })
    expect(() => countElements(CreateContainerRequest.encode(request).finish(), CREATE)).not.toThrow()
  })

  it('passes data of any length', () => {
    const request = WriteStreamRequest.fromPartial({ data: new Uint8Array(4_000_000) })
    expect(() =>
      countElements(WriteStreamRequest.encode(request).finish(), 'grpc.WriteStreamRequest'),
    ).not.toThrow()
  })

  it.each([
    ['messages', 'storages', (writer: BinaryWriter) => empty(writer, 5, 600_000)],
    ['texts deep inside', 'OCI.Process.Env', (writer: BinaryWriter) => inProcess(writer, 5)],
    ['messages deep inside', 'OCI.Process.Rlimits', (writer: BinaryWriter) => inProcess(writer, 8)],
    ['one message, again and again', 'OCI', (writer: BinaryWriter) => empty(writer, 6, 600_000)],
    ['fields that no proto has', 'field 777', (writer: BinaryWriter) => empty(writer, 777, 600_000)],
  ])('refuses too many %s, and names %s', (_what, field, write) => {
    const writer = new BinaryWriter()
    write(writer)
    expect(() => countElements(writer.finish(), CREATE)).toThrow(
      expect.objectContaining({
        code: 'RESOURCE_EXHAUSTED',
        message: `${field}: more than ${LIMITS.elements} elements in one request`,
      }),
    )
  })

  it('refuses too many entries of a map', () => {
    const entries = Array.from({ length: LIMITS.elements + 1 }, (_, index) => [`${index}`, ''])
    const request = CreateContainerRequest.fromPartial({ OCI: { Annotations: Object.fromEntries(entries) } })
    expect(() => countElements(CreateContainerRequest.encode(request).finish(), CREATE)).toThrow(
      'OCI.Annotations.key: more',
    )
  })

  it('refuses packed numbers that end after their field', () => {
    const bytes = tooManyBehind(Uint8Array.of(0x0a, 1, 0x80))
    expect(() => countElements(bytes, 'grpc.MemHotplugByProbeRequest')).toThrow(
      'request: cannot be decoded: a packed number ends after its field',
    )
  })

  it('refuses too many packed numbers', () => {
    const request = MemHotplugByProbeRequest.fromPartial({
      memHotplugProbeAddr: Array.from({ length: LIMITS.elements + 1 }, (_, index) => BigInt(index)),
    })
    const bytes = MemHotplugByProbeRequest.encode(request).finish()
    expect(() => countElements(bytes, 'grpc.MemHotplugByProbeRequest')).toThrow('memHotplugProbeAddr: more')
  })

  it.each([
    ['with any bytes', new Uint8Array(100_000).fill(0xff)],
    ['whose field ends after it', new Uint8Array(100_000).fill(0x2a)],
    ['with a tag of 0', tooManyBehind(Uint8Array.of(0x32, 2, 0, 0))],
    ['with a tag that ends a group', tooManyBehind(Uint8Array.of(0x32, 2, 0x0c, 0))],
    ['with a message that ends after the one around it', tooManyBehind(Uint8Array.of(0x32, 2, 0x12, 100))],
    [
      'with a number that ends after the message around it',
      tooManyBehind(Uint8Array.of(0x32, 2, 0x18, 0x80)),
    ],
  ])('refuses a message %s: the decoder would read on where it cannot be counted', (_what, bytes) => {
    expect(() => countElements(bytes, CREATE)).toThrow(
      expect.objectContaining({
        code: 'UNKNOWN',
        message: expect.stringMatching(/^request: cannot be decoded: ./),
      }),
    )
  })
})

function tooManyBehind(bytes: Uint8Array): Uint8Array {
  const writer = new BinaryWriter()
  empty(writer, 5, 600_000)
  return Buffer.concat([bytes, writer.finish()])
}

function empty(writer: BinaryWriter, field: number, times: number): void {
  for (let index = 0; index < times; index += 1) {
    writer.tag(field, WireType.LengthDelimited).bytes(new Uint8Array(0))
  }
}

function inProcess(writer: BinaryWriter, field: number): void {
  writer.tag(6, WireType.LengthDelimited).fork().tag(2, WireType.LengthDelimited).fork()
  empty(writer, field, 600_000)
  writer.join().join()
}
