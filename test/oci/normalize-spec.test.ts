import { describe, expect, it } from 'vitest'
import { CreateContainerRequest } from '../../src/gen/agent.ts'
import { LinuxResources, Process, Spec } from '../../src/gen/oci.ts'
import { checkSpec } from '../../src/oci/check/check-spec.ts'
import { completeSpec } from '../../src/oci/container-spec.ts'
import { normalizeProcess, normalizeResources, normalizeSpec } from '../../src/oci/normalize-spec.ts'
import { allRecordings } from '../recordings/recording.ts'

type PartialSpec = Parameters<typeof Spec.fromPartial>[0]
type PartialProcess = NonNullable<PartialSpec['Process']>

function normalized(given: PartialSpec) {
  const ignored: string[] = []
  const complete = { Process: { Args: ['sh'] }, Root: { Path: '/root' }, Linux: {}, ...given }
  const spec = normalizeSpec(Spec.fromPartial(complete), (field, value, reason) =>
    ignored.push(`${field}: ${value}: ${reason}`),
  )
  const { linux, process } = completeSpec(spec)
  return { spec, linux, process, ignored, check: () => checkSpec(completeSpec(spec)) }
}

// The words of docs/reference/callers-words.md, and an unknown word of each class.
describe('normalizeSpec', () => {
  it.each([
    ['mnt', 'mount'],
    ['net', 'network'],
    ...['mount', 'network', 'pid', 'ipc', 'uts', 'user', 'cgroup', 'time'].map((word) => [word, word]),
  ])('takes the namespace %s for %s', (word, expected) => {
    const { linux, check } = normalized({ Linux: { Namespaces: [{ Type: word, Path: '/ns' }] } })
    expect(linux.Namespaces).toEqual([{ Type: expected, Path: '/ns' }])
    check()
  })

  it.each(['CAP_CHOWN', 'CHOWN', 'chown', 'cap_chown', 'Cap_Chown', '"CHOWN"', '"CAP_CHOWN"', '"chown"'])(
    'takes the capability %s for CAP_CHOWN in every set',
    (word) => {
      const sets = { Bounding: [word], Effective: [word], Inheritable: [word] }
      const { process, check } = normalized({
        Process: { Args: ['sh'], Capabilities: { ...sets, Permitted: [word], Ambient: [word] } },
      })
      expect(Object.values(process.Capabilities ?? {})).toEqual(new Array(5).fill(['CAP_CHOWN']))
      check()
    },
  )

  it.each([
    [0, undefined],
    [undefined, undefined],
    [38, 38],
  ])('takes the errno %s of a system call for %s', (errnoret, expected) => {
    const { linux } = normalized({
      Linux: { Seccomp: { DefaultAction: 'SCMP_ACT_ALLOW', Syscalls: [{ errnoret }] } },
    })
    expect(linux.Seccomp?.Syscalls.map((syscall) => syscall.errnoret)).toEqual([expected])
  })

  it('takes an unbuffered character device for a character device, in nodes and rules', () => {
    const { linux, check } = normalized({
      Linux: { Devices: [{ Path: '/dev/x', Type: 'u' }], Resources: { Devices: [{ Type: 'u' }] } },
    })
    expect(linux).toMatchObject({ Devices: [{ Type: 'c' }], Resources: { Devices: [{ Type: 'c' }] } })
    check()
  })

  it.each([
    [0o020666, 0o666],
    [0o060640, 0o640],
    [0o1777, 0o1777],
    [438, 0o666],
    [0, 0],
  ])('takes the permissions of the mode %i of a node', (FileMode, expected) => {
    const { linux } = normalized({ Linux: { Devices: [{ Path: '/dev/x', Type: 'c', FileMode }] } })
    expect(linux.Devices[0]?.FileMode).toBe(expected)
  })

  it('ignores architectures that the runtimes do not know, and reports them', () => {
    const Architectures = ['SCMP_ARCH_X86_64', 'SCMP_ARCH_NATIVE', 'VAX', 'SCMP_ARCH_X32']
    const { linux, ignored, check } = normalized({
      Linux: { Seccomp: { DefaultAction: 'SCMP_ACT_ALLOW', Architectures } },
    })
    expect(linux.Seccomp?.Architectures).toEqual(['SCMP_ARCH_X86_64', 'SCMP_ARCH_X32'])
    expect(ignored).toEqual([
      'linux.seccomp.architectures: SCMP_ARCH_NATIVE: unknown to the OCI runtimes',
      'linux.seccomp.architectures: VAX: unknown to the OCI runtimes',
    ])
    check()
  })

  it('ignores variables without a name, and reports their places but not their values', () => {
    const { process, ignored, check } = normalized({
      Process: { Args: ['sh'], Env: ['A=b', '=secret', 'C==d'] },
    })
    expect(process.Env).toEqual(['A=b', 'C==d'])
    expect(ignored).toEqual(['process.env: entry 1: it has no name'])
    check()
  })

  const allow = { DefaultAction: 'SCMP_ACT_ALLOW' }
  it.each<[string, PartialSpec, string]>([
    ['namespace', { Linux: { Namespaces: [{ Type: 'MNT' }] } }, 'linux.namespaces[0].type'],
    ['namespace', { Linux: { Namespaces: [{ Type: 'pid' }, { Type: '' }] } }, 'linux.namespaces[1].type'],
    ['capability', process({ Capabilities: { Bounding: ['CAP_'] } }), 'process.capabilities.Bounding'],
    ['capability', process({ Capabilities: { Ambient: ['FLY'] } }), 'process.capabilities.Ambient'],
    ['capability', process({ Capabilities: { Permitted: [''] } }), 'process.capabilities.Permitted'],
    ['limit', process({ Rlimits: [{ Type: 'NOFILE' }] }), 'process.rlimits'],
    ['action', { Linux: { Seccomp: { DefaultAction: 'ALLOW' } } }, 'linux.seccomp.defaultAction'],
    [
      'action',
      { Linux: { Seccomp: { ...allow, Syscalls: [{ Action: 'x' }] } } },
      'linux.seccomp.syscalls[0].action',
    ],
    ['flag', { Linux: { Seccomp: { ...allow, Flags: ['TSYNC'] } } }, 'linux.seccomp.flags'],
    [
      'operator',
      { Linux: { Seccomp: { ...allow, Syscalls: [{ Action: 'SCMP_ACT_LOG', Args: [{ Op: 'EQ' }] }] } } },
      'linux.seccomp.syscalls[0].args.op',
    ],
    ['propagation', { Linux: { RootfsPropagation: 'RPRIVATE' } }, 'linux.rootfsPropagation'],
    [
      'access',
      { Linux: { Resources: { Devices: [{ Type: 'c', Access: 'rwx' }] } } },
      'linux.resources.devices[0].access',
    ],
    ['device', { Linux: { Devices: [{ Path: '/dev/x', Type: 'C' }] } }, 'linux.devices[0].type'],
    [
      'device rule',
      { Linux: { Resources: { Devices: [{ Type: 'p' }] } } },
      'linux.resources.devices[0].type',
    ],
  ])('leaves an unknown %s to the check: %j', (_class, given, field) => {
    const { ignored, check } = normalized(given)
    expect(check).toThrow(
      expect.objectContaining({
        code: 'INVALID_ARGUMENT',
        message: expect.stringContaining(`${field}: unknown value "`),
      }),
    )
    expect(ignored).toEqual([])
  })
})

function process(change: PartialProcess): PartialSpec {
  return { Process: { Args: ['sh'], ...change } }
}

describe('the specifications that real callers sent', () => {
  const specs = allRecordings()
    .flatMap(({ name, lines }) => lines.map((line) => ({ name, line })))
    .flatMap(({ name, line }) => {
      if (line.kind !== 'call' || line.method !== 'CreateContainer') return []
      const { OCI } = CreateContainerRequest.decode(line.requestBytes ?? new Uint8Array())
      return OCI === undefined ? [] : [{ place: `${name}, line ${line.line}`, OCI }]
    })

  it('are many', () => {
    expect(specs.length).toBeGreaterThan(10)
  })

  it.each(specs)('are followed without a word ignored or refused: $place', ({ OCI }) => {
    const ignored: string[] = []
    const spec = normalizeSpec(OCI, (...parts) => ignored.push(parts.join(': ')))
    checkSpec(completeSpec(spec))
    expect(ignored).toEqual([])
    // A second conversion changes nothing.
    expect(normalizeSpec(spec, () => {})).toEqual(spec)
  })
})

describe('normalizeProcess', () => {
  it('keeps a process without capabilities without them, to be inherited', () => {
    const given = Process.fromPartial({ Args: ['sh'] })
    expect(normalizeProcess(given, () => {})).toEqual(given)
  })
})

describe('normalizeResources', () => {
  it('changes only the words of device rules', () => {
    const resources = LinuxResources.fromPartial({ Devices: [{ Type: 'u', Major: 1n }], Pids: { Limit: 5n } })
    expect(normalizeResources(resources)).toEqual({
      ...resources,
      Devices: [{ ...resources.Devices[0], Type: 'c' }],
    })
  })
})
