import { describe, expect, it } from 'vitest'
import {
  decodeRecord,
  decodeWaitStatus,
  encodeCommand,
  RecordKind,
} from '../../../src/os/supervisor/channel-record.ts'

/** A `struct record` of native/init/channel/record.h, as the C compiler laid it out. */
const RECORDED_EXIT =
  '0100000001000000e1100000090000008877665544332211dc05000000000000' +
  'fa0000000000000000080000000000004d000000000000000000000000000000'
const RECORDED_EXIT_WITH = `01000000110000000000000007000000${'00'.repeat(48)}`

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
    other.writeUInt32LE(2, 0)
    expect(decodeRecord(other)).toBeUndefined()
  })
})

describe('encodeCommand', () => {
  it('encodes the commands for vminit', () => {
    expect(encodeCommand(RecordKind.EXIT_WITH, 7).toString('hex')).toBe(RECORDED_EXIT_WITH)
  })
})

describe('decodeWaitStatus', () => {
  it.each([
    ['exit 0', 0x0000, { exitCode: 0, signal: undefined }],
    ['exit 255', 0xff00, { exitCode: 255, signal: undefined }],
    ['SIGKILL', 0x0009, { exitCode: 137, signal: 9 }],
    ['SIGSEGV with a core', 0x008b, { exitCode: 139, signal: 11 }],
  ])('tells %s', (_name, status, expected) => {
    expect(decodeWaitStatus(status)).toEqual(expected)
  })
})
