import { describe, expect, it } from 'vitest'
import { type DeepPartial, Spec } from '../../src/gen/oci.ts'
import { deniedCalls } from '../../src/oci/denied-calls.ts'

const NAME = 'microvm.agent.container_vsock'

function spec(partial: DeepPartial<Spec> = {}): Spec {
  return Spec.fromPartial(partial)
}

function withRule(Action: string, Names: readonly string[]): Spec {
  const Seccomp = { DefaultAction: 'SCMP_ACT_ERRNO', Syscalls: [{ Action, Names: [...Names] }] }
  return spec({ Linux: { Seccomp } })
}

describe('deniedCalls', () => {
  it('are AF_VSOCK and io_uring, unless the setting or the annotation says otherwise', () => {
    expect(deniedCalls(spec(), 'deny')).toEqual(['vsock', 'io_uring'])
    expect(deniedCalls(spec(), 'allow')).toEqual([])
    expect(deniedCalls(spec({ Annotations: { [NAME]: 'allow' } }), 'deny')).toEqual([])
    expect(deniedCalls(spec({ Annotations: { [NAME]: 'deny' } }), 'allow')).toEqual(['vsock', 'io_uring'])
  })

  it.each([
    ['SCMP_ACT_ALLOW', ['read', 'io_uring_setup'], ['vsock']],
    ['SCMP_ACT_LOG', ['io_uring_setup'], ['vsock']],
    ['SCMP_ACT_ERRNO', ['io_uring_setup'], ['vsock', 'io_uring']],
    ['SCMP_ACT_ALLOW', ['io_uring_enter'], ['vsock', 'io_uring']],
  ])('leave io_uring to a profile that permits it by name (%s %j)', (action, names, denied) => {
    expect(deniedCalls(withRule(action, names), 'deny')).toEqual(denied)
  })

  it('are not decided by an unknown word', () => {
    expect(() => deniedCalls(spec({ Annotations: { [NAME]: 'yes' } }), 'deny')).toThrow(
      `annotations['${NAME}']: unknown value "yes", want deny or allow`,
    )
  })
})
