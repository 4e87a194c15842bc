import { describe, expect, it } from 'vitest'
import { LinuxResources, Process, Spec } from '../../../src/gen/oci.ts'
import { checkProcess } from '../../../src/oci/check/check-process.ts'
import { checkResources, checkSpec } from '../../../src/oci/check/check-spec.ts'
import { completeSpec } from '../../../src/oci/container-spec.ts'

type PartialSpec = Parameters<typeof Spec.fromPartial>[0]
type PartialProcess = NonNullable<PartialSpec['Process']>

function check(spec: PartialSpec): void {
  const complete = { Process: { Args: ['sh'] }, Root: { Path: '/root' }, Linux: {}, ...spec }
  checkSpec(completeSpec(Spec.fromPartial(complete)))
}

const refusal = (message: string) => expect.objectContaining({ code: 'INVALID_ARGUMENT', message })

describe('checkSpec', () => {
  it('accepts the specs that hosts send', () => {
    const kill = ['CAP_KILL']
    const whole: PartialSpec = {
      Process: {
        Args: ['sh', ''],
        Env: ['A=', 'B=c=d'],
        Cwd: '/a/../b',
        Capabilities: { Bounding: kill, Effective: kill, Inheritable: kill, Permitted: kill, Ambient: kill },
        Rlimits: [{ Type: 'RLIMIT_NOFILE', Soft: 2n ** 64n - 1n, Hard: 2n ** 64n - 1n }],
        ConsoleSize: { Height: 0xffff, Width: 0 },
        OOMScoreAdj: -1000n,
      },
      Mounts: [
        { destination: '/proc', source: 'proc', type: 'proc' },
        { destination: 'relative', source: '/a..b/..c', type: 'bind' },
      ],
      Hooks: { Poststop: [{ Path: '/hook', Args: [], Env: ['A=b', 'C'], Timeout: 0n }] },
      Linux: {
        Namespaces: ['pid', 'network', 'mount', 'ipc', 'uts', 'user', 'cgroup'].map((Type) => ({ Type })),
        CgroupsPath: 'system.slice:kata:..c1',
        Devices: [{ Path: '/dev/null', Type: 'c' }],
        Resources: { Devices: [{ Type: '', Access: 'rwm' }, { Type: 'b' }] },
        Seccomp: {
          DefaultAction: 'SCMP_ACT_ERRNO',
          Architectures: ['SCMP_ARCH_X86_64', 'SCMP_ARCH_AARCH64'],
          Flags: ['SECCOMP_FILTER_FLAG_LOG'],
          Syscalls: [{ Names: ['read'], Action: 'SCMP_ACT_ALLOW', Args: [{ Op: 'SCMP_CMP_MASKED_EQ' }] }],
        },
      },
    }
    for (const spec of [whole, { Root: { Path: '' } }]) expect(() => check(spec)).not.toThrow()
  })

  it('refuses a hook with a negative timeout', () => {
    const Hooks = { CreateRuntime: [{ Path: '/x', Timeout: -1n }] }
    expect(() => check({ Hooks })).toThrow(refusal('Hooks.CreateRuntime.Timeout: -1 s, want at least 0'))
  })

  const allow = { DefaultAction: 'SCMP_ACT_ALLOW' }
  it.each<[PartialSpec, string]>([
    [{ Root: { Path: 'images/x' } }, 'root.path: "images/x", want an absolute path'],
    [{ Root: { Path: '/a/../b' } }, 'root.path: "/a/../b", want no ".."'],
    [{ Root: { Path: '/a\0b' } }, 'root.path: contains a NUL byte'],
    [{ Mounts: [{ destination: '' }] }, 'Mounts.destination: empty'],
    [{ Mounts: [{ destination: '/../x' }] }, 'Mounts.destination: "/../x", want no ".."'],
    [{ Mounts: [{ destination: '/x', source: '/a/..' }] }, 'Mounts.source: "/a/..", want no ".."'],
    [{ Hooks: { Prestart: [{ Path: '' }] } }, 'Hooks.Prestart.Path: "", want an absolute path'],
    [{ Hooks: { Poststart: [{ Path: 'x' }] } }, 'Hooks.Poststart.Path: "x", want an absolute path'],
    [{ Hooks: { Poststop: [{ Path: '/a/../b' }] } }, 'Hooks.Poststop.Path: "/a/../b", want no ".."'],
    [
      { Hooks: { StartContainer: [{ Path: '/x', Args: ['a\0'] }] } },
      'Hooks.StartContainer.Args: contains a NUL byte',
    ],
    [
      { Hooks: { CreateContainer: [{ Path: '/x', Env: ['A=\0'] }] } },
      'Hooks.CreateContainer.Env: contains a NUL byte',
    ],
    [{ Linux: { Namespaces: [{ Type: 'planet' }] } }, 'linux.namespaces[0].type: unknown value "planet"'],
    [
      { Linux: { Namespaces: [{ Type: 'network', Path: 'proc/1/ns/net' }] } },
      'linux.namespaces[0].path: "proc/1/ns/net", want an absolute path',
    ],
    [{ Linux: { CgroupsPath: '/a/../..' } }, 'linux.cgroupsPath: "/a/../..", want no ".."'],
    [{ Linux: { CgroupsPath: 'a:..:b' } }, 'linux.cgroupsPath: "a/../b", want no ".."'],
    [
      { Linux: { Devices: [{ Path: '/dev/../x', Type: 'c' }] } },
      'linux.devices[0].path: "/dev/../x", want no ".."',
    ],
    [{ Linux: { Devices: [{ Path: '/dev/x', Type: 'z' }] } }, 'linux.devices[0].type: unknown value "z"'],
    [
      { Linux: { Resources: { Devices: [{ Type: 'z' }] } } },
      'linux.resources.devices[0].type: unknown value "z"',
    ],
    [{ Linux: { Seccomp: { DefaultAction: 'NO' } } }, 'linux.seccomp.defaultAction: unknown value "NO"'],
    [{ Linux: { Seccomp: { ...allow, Flags: ['?'] } } }, 'linux.seccomp.flags: unknown value "?"'],
    [
      { Linux: { Seccomp: { ...allow, Syscalls: [{ Action: '' }] } } },
      'linux.seccomp.syscalls[0].action: unknown value ""',
    ],
    [
      { Linux: { Seccomp: { ...allow, Syscalls: [{ Action: 'SCMP_ACT_LOG', Args: [{ Op: '?' }] }] } } },
      'linux.seccomp.syscalls[0].args.op: unknown value "?"',
    ],
    [{ Process: { Args: [] } }, 'process.args: no program'],
  ])('refuses, naming the field: %j', (spec, message) => {
    expect(() => check(spec)).toThrow(refusal(message))
  })
})

describe('checkProcess', () => {
  const core = { Type: 'RLIMIT_CORE', Soft: 1n, Hard: 1n }
  it.each<[string, PartialProcess, string]>([
    ['no program', { Args: [''] }, 'process.args: no program'],
    ['an argument that ends early', { Args: ['sh', 'a\0b'] }, 'process.args: contains a NUL byte'],
    ['a value without a name', { Env: ['A=b', '=x'] }, 'process.env: Malformed OCI env entry, number 1'],
    ['a secret without a name', { Env: ['secret'] }, 'process.env: Malformed OCI env entry, number 0'],
    ['an empty variable', { Env: [''] }, 'process.env: Malformed OCI env entry, number 0'],
    ['a relative folder', { Cwd: 'tmp' }, 'process.cwd: "tmp", want an absolute path'],
    [
      'a capability that does not exist',
      { Capabilities: { Ambient: ['CAP_KILL', 'CAP_FLY'] } },
      'process.capabilities.Ambient: unknown value "CAP_FLY"',
    ],
    ['a limit of nothing', { Rlimits: [{ Type: 'RLIMIT_X' }] }, 'process.rlimits: unknown value "RLIMIT_X"'],
    ['two limits of one kind', { Rlimits: [core, core] }, 'process.rlimits: RLIMIT_CORE given twice'],
    [
      'a soft limit above the hard one',
      { Rlimits: [{ ...core, Soft: 2n }] },
      'process.rlimits: RLIMIT_CORE: the soft limit is above the hard one',
    ],
    [
      'a terminal that is too large',
      { ConsoleSize: { Height: 1, Width: 0x10000 } },
      'process.consoleSize: 1 x 65536, want at most 65535 each',
    ],
    [
      'a user that leaves the process root',
      { User: { UID: 0xffffffff } },
      'process.user.uid: 4294967295, want at most 4294967294',
    ],
    [
      'a group that leaves the process in that of root',
      { User: { UID: 1, GID: 0xffffffff } },
      'process.user.gid: 4294967295, want at most 4294967294',
    ],
    [
      'such a group among further ones',
      { User: { AdditionalGids: [1, 0xffffffff] } },
      'process.user.additionalGids: 4294967295, want at most 4294967294',
    ],
    ['a score out of range', { OOMScoreAdj: 1001n }, 'process.oomScoreAdj: 1001, want -1000 to 1000'],
  ])('refuses %s', (_what, process, message) => {
    const complete = Process.fromPartial({ Args: ['sh'], ...process })
    expect(() => checkProcess(complete)).toThrow(refusal(message))
  })
})

describe('checkResources', () => {
  it('refuses a rule for a kind of device that does not exist', () => {
    const resources = LinuxResources.fromPartial({ Devices: [{ Type: 'z' }] })
    expect(() => checkResources(resources)).toThrow(
      refusal('linux.resources.devices[0].type: unknown value "z"'),
    )
  })
})
