import { describe, expect, it } from 'vitest'
import {
  decodeRecord,
  decodeStoreResult,
  decodeWaitStatus,
  encodeCommand,
  encodeNamed,
  RecordKind,
} from '../../../src/os/supervisor/channel-record.ts'

/** A `struct record` of native/init/channel/record.h, as the C compiler laid it out. */
const RECORDED_EXIT =
  '0200000001000000e1100000090000008877665544332211dc05000000000000' +
  'fa0000000000000000080000000000004d000000000000000000000000000000'
const RECORDED_ACK_EXITS = `0200000016000000${'00'.repeat(40)}4d00000000000000${'00'.repeat(8)}`
/** The name `p1-stdin`, and ENOSPC. */
const RECORDED_STORE_RESULT = `020000000400000070312d737464696e${'00'.repeat(24)}1c000000${'00'.repeat(20)}`

describe('decodeRecord', () => {
  it('decodes the records of vminit', () => {
    expect(decodeRecord(Buffer.from(RECORDED_EXIT, 'hex'))).toEqual({
      kind: RecordKind.EXIT,
      pid: 4321,
      status: 9,
      boottimeNs: 0x1122334455667788n,
      userTimeUs: 1500n,
      systemTimeUs: 250n,
      maxRssKib: 2048n,
      sequence: 77n,
    })
  })

  it('returns undefined for another version', () => {
    const other = Buffer.from(RECORDED_EXIT, 'hex')
    other.writeUInt32LE(1, 0)
    expect(decodeRecord(other)).toBeUndefined()
  })
})

describe('encodeCommand', () => {
  it('encodes the commands for vminit', () => {
    expect(encodeCommand(RecordKind.ACK_EXITS, { sequence: 77n }).toString('hex')).toBe(RECORDED_ACK_EXITS)
  })
})

describe('the records about the store', () => {
  it('decodes an answer', () => {
    expect(decodeStoreResult(Buffer.from(RECORDED_STORE_RESULT, 'hex'))).toEqual({
      name: 'p1-stdin',
      errno: 28,
    })
  })

  it('encodes the longest name, and refuses a longer one', () => {
    const name = 'n'.repeat(31)
    expect(encodeNamed(RecordKind.UNSTORE, name).toString('latin1', 8, 40)).toBe(`${name}\0`)
    expect(() => encodeNamed(RecordKind.UNSTORE, `${name}n`)).toThrow(RangeError)
  })
})

describe('decodeWaitStatus', () => {
  it.each([
    ['exit 0', 0x0000, { exitCode: 0, signal: undefined }],
    ['exit 255', 0xff00, { exitCode: 255, signal: undefined }],
    ['SIGKILL', 0x0009, { exitCode: 137, signal: 9 }],
    ['SIGSEGV with a core', 0x008b, { exitCode: 139, signal: 11 }],
  ])('decodes %s', (_name, status, expected) => {
    expect(decodeWaitStatus(status)).toEqual(expected)
  })
})
