import { describe, expect, it } from 'vitest'
import { MemAgentMemcgConfig, ReadStreamResponse, SetGuestDateTimeRequest } from '../../src/gen/agent.ts'
import { LinuxSyscall, POSIXRlimit } from '../../src/gen/oci.ts'
import { VMMetadata } from '../../src/gen/vm.ts'

const UINT64_MAX = 2n ** 64n - 1n
const INT64_MIN = -(2n ** 63n)

describe('the generated codec', () => {
  it('carries uint64 up to 2^64-1 without loss', () => {
    const limit = POSIXRlimit.create({ Type: 'RLIMIT_NOFILE', Hard: UINT64_MAX, Soft: UINT64_MAX - 1n })
    expect(POSIXRlimit.decode(POSIXRlimit.encode(limit).finish())).toEqual(limit)
  })

  it('refuses a number of more than 64 bits', () => {
    const limit = POSIXRlimit.create({ Hard: UINT64_MAX + 1n })
    expect(() => POSIXRlimit.encode(limit)).toThrow('Hard')
  })

  it('carries int64 down to -2^63', () => {
    const time = SetGuestDateTimeRequest.create({ Sec: INT64_MIN, Usec: -1n })
    expect(SetGuestDateTimeRequest.decode(SetGuestDateTimeRequest.encode(time).finish())).toEqual(time)
  })

  it('distinguishes an optional field that is 0 from an absent one', () => {
    const config = MemAgentMemcgConfig.create({ swappinessMax: 0 })
    const decoded = MemAgentMemcgConfig.decode(MemAgentMemcgConfig.encode(config).finish())
    expect(decoded.swappinessMax).toBe(0)
    expect(decoded.periodSecs).toBeUndefined()
  })

  it('distinguishes a oneof member that is 0 from an absent one', () => {
    const rule = LinuxSyscall.create({ errnoret: 0 })
    expect(LinuxSyscall.decode(LinuxSyscall.encode(rule).finish()).errnoret).toBe(0)
    expect(LinuxSyscall.decode(new Uint8Array()).errnoret).toBeUndefined()
  })

  it('decodes bytes as a view of the received buffer', () => {
    const wire = ReadStreamResponse.encode({ data: Uint8Array.of(1, 2, 3) }).finish()
    expect(ReadStreamResponse.decode(wire).data.buffer).toBe(wire.buffer)
  })

  it('skips unknown fields', () => {
    const wire = Uint8Array.of(0xfa, 0x01, 3, 1, 2, 3, 0x0a, 1, 7) // field 31, then field 1
    expect(ReadStreamResponse.decode(wire).data).toEqual(Uint8Array.of(7))
  })

  it('reads a VM metadata file as other hypervisors write it', () => {
    const link = Buffer.concat([lengthDelimited(1, '10.0.0.2'), lengthDelimited(2, '10.0.0.1')])
    const wire = Buffer.concat([lengthDelimited(1, 'vm'), lengthDelimited(2, lengthDelimited(1, link))])
    expect(VMMetadata.decode(wire)).toEqual({
      name: 'vm',
      networkConfig: { v4: { ip: '10.0.0.2', peerIp: '10.0.0.1' }, v6: undefined },
    })
  })
})

/** A field of wire type 2, written by hand so that the field numbers are checked too. */
function lengthDelimited(fieldNumber: number, content: string | Uint8Array): Buffer {
  const bytes = Buffer.from(content)
  return Buffer.concat([Uint8Array.of((fieldNumber << 3) | 2, bytes.length), bytes])
}
