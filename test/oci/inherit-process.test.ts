import { describe, expect, it } from 'vitest'
import { Process } from '../../src/gen/oci.ts'
import { inheritProcess } from '../../src/oci/inherit-process.ts'

const SETS = { Bounding: ['CAP_KILL'], Effective: [], Inheritable: [], Permitted: [], Ambient: [] }
const first = Process.fromPartial({
  Capabilities: SETS,
  Rlimits: [{ Type: 'RLIMIT_NOFILE', Hard: 9n, Soft: 8n }],
})

describe('execProcess', () => {
  it('inherits capabilities and the limit of open files', () => {
    const process = inheritProcess(Process.fromPartial({ Args: ['x'] }), first)
    expect(process.Capabilities).toEqual(SETS)
    expect(process.Rlimits).toEqual(first.Rlimits)
  })

  it('keeps the capabilities and limits of the process itself', () => {
    const own = Process.fromPartial({
      Capabilities: { Bounding: [] },
      Rlimits: [{ Type: 'RLIMIT_NOFILE', Hard: 1n, Soft: 1n }],
    })
    expect(inheritProcess(own, first)).toEqual(own)
  })

  it('fails when there are no capabilities to inherit', () => {
    expect(() => inheritProcess(Process.fromPartial({}), Process.fromPartial({}))).toThrow('capabilities')
  })
})
