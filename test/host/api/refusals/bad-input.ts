import type { StatusCodeName } from '../../../../src/base/errors.ts'
import type { CreateContainerRequest } from '../../../../src/gen/agent.ts'
import type { DeepPartial, Linux, Process, Spec } from '../../../../src/gen/oci.ts'
import { createContainerRequest, execProcessRequest } from '../../../support/containers/container-requests.ts'
import type { AgentConnection } from '../../../support/host/agent-process.ts'

type Agent = AgentConnection['agent']

/** A request that is invalid for any container. */
export interface BadInput {
  readonly rpc: string
  readonly what: string
  /** `root` is a root for containers; the container `living` runs, with a process `terminal`. */
  readonly call: (agent: Agent, root: string) => Promise<unknown>
  readonly code: StatusCodeName
  readonly names: string
}

export const UNMADE = 'unmade'

const creation = (
  what: string,
  change: (request: DeepPartial<CreateContainerRequest>) => DeepPartial<CreateContainerRequest>,
  names: string,
  code: StatusCodeName = 'INVALID_ARGUMENT',
): BadInput => ({
  rpc: 'CreateContainer',
  what,
  call: (agent, root) => agent.createContainer(change(createContainerRequest(UNMADE, root, ['true']))),
  code,
  names,
})

const withSpec =
  (change: DeepPartial<Spec>) =>
  ({ OCI, ...request }: DeepPartial<CreateContainerRequest>) => ({ ...request, OCI: { ...OCI, ...change } })

const withLinux =
  (change: DeepPartial<Linux>) =>
  ({ OCI, ...request }: DeepPartial<CreateContainerRequest>) => ({
    ...request,
    OCI: { ...OCI, Linux: { ...OCI?.Linux, ...change } },
  })

const withProcess =
  (change: DeepPartial<Process>) =>
  ({ OCI, ...request }: DeepPartial<CreateContainerRequest>) => ({
    ...request,
    OCI: { ...OCI, Process: { ...OCI?.Process, ...change } },
  })

const ids = ['', 'x', '-x', '.x', 'a/b', '..', '../x', 'a b', 'a\nb', 'a\0b', 'ä1', 'shared', 'x'.repeat(256)]

/** Each change is tested in a container's first process and in an added one. */
const processes: readonly (readonly [what: string, change: DeepPartial<Process>, names: string])[] = [
  ['no program', { Args: [] }, 'process.args'],
  ['a program without a name', { Args: [''] }, 'process.args'],
  ['a NUL character in an argument', { Args: ['echo', 'a\0b'] }, 'process.args'],
  ['a variable without "="', { Env: ['x'] }, 'Malformed OCI env entry'],
  ['a relative folder', { Cwd: 'tmp' }, 'process.cwd: "tmp"'],
  ['an unknown capability', { Capabilities: { Bounding: ['CAP_FLY'] } }, 'Bounding: unknown value "CAP_FLY"'],
  ['an unknown limit', { Rlimits: [{ Type: 'RLIMIT_X' }] }, 'process.rlimits: unknown value "RLIMIT_X"'],
  ['a terminal without end', { Terminal: true, ConsoleSize: { Height: 70_000 } }, 'process.consoleSize'],
]

const mount = (destination: string, source = 'tmpfs') => ({
  Mounts: [{ destination, source, type: 'tmpfs', options: [] }],
})

const allow = { DefaultAction: 'SCMP_ACT_ALLOW' }

/** An unknown word of each kind in a seccomp profile. Unknown architectures are ignored. */
const seccompWords: readonly BadInput[] = [
  creation(
    'an unknown seccomp action of a system call',
    withLinux({ Seccomp: { ...allow, Syscalls: [{ Names: ['acct'], Action: 'ERRNO' }] } }),
    'linux.seccomp.syscalls[0].action: unknown value "ERRNO"',
  ),
  creation(
    'an unknown seccomp operator',
    withLinux({
      Seccomp: { ...allow, Syscalls: [{ Names: ['acct'], Action: 'SCMP_ACT_LOG', Args: [{ Op: 'EQ' }] }] },
    }),
    'linux.seccomp.syscalls[0].args.op: unknown value "EQ"',
  ),
  creation(
    'an unknown seccomp flag',
    withLinux({ Seccomp: { ...allow, Flags: ['LOG'] } }),
    'linux.seccomp.flags: unknown value "LOG"',
  ),
]

const specs: readonly BadInput[] = [
  creation('no spec', ({ OCI: _, ...request }) => request, 'EINVAL', 'INTERNAL'),
  creation('no process', withSpec({ Process: undefined }), 'EINVAL', 'INTERNAL'),
  creation('no root', withSpec({ Root: undefined }), 'EINVAL', 'INTERNAL'),
  creation('no linux part', withSpec({ Linux: undefined }), 'Spec does not contain linux field', 'INTERNAL'),
  creation('a root that leads elsewhere', withSpec({ Root: { Path: '/a/../b' } }), 'root.path: "/a/../b"'),
  creation('a relative root', withSpec({ Root: { Path: 'root' } }), 'root.path: "root"'),
  creation('a root that is not there', withSpec({ Root: { Path: '/no/such' } }), '/no/such', 'INTERNAL'),
  creation('a mount that leads out', withSpec(mount('/../../x')), 'Mounts.destination: "/../../x"'),
  creation('a mount on nothing', withSpec(mount('')), 'Mounts.destination'),
  creation('a mount from elsewhere', withSpec(mount('/x', '/a/../etc')), 'Mounts.source: "/a/../etc"'),
  creation(
    'a termination log that leads out',
    withSpec({
      ...mount('/tmp/../../log', '/etc/hostname'),
      Annotations: { 'io.kubernetes.container.terminationMessagePath': '/tmp/../../log' },
    }),
    'Mounts.destination: "/tmp/../../log"',
  ),
  creation('a cgroup that leads up', withLinux({ CgroupsPath: '/../x' }), 'linux.cgroupsPath: "/../x"'),
  creation('a cgroup that leads up in parts', withLinux({ CgroupsPath: 'a:..:b' }), 'linux.cgroupsPath'),
  creation('the cgroup of another', withLinux({ CgroupsPath: '/living' }), "of container 'living'"),
  creation(
    'a cgroup within that of another',
    withLinux({ CgroupsPath: '/living/x' }),
    "of container 'living'",
  ),
  creation(
    'a hook that is named by no path',
    withSpec({ Hooks: { Poststart: [{ Path: 'hook' }] } }),
    'Hooks.Poststart.Path: "hook"',
  ),
  creation(
    'a hook without time',
    withSpec({ Hooks: { Poststop: [{ Path: '/bin/true', Timeout: -1n }] } }),
    'Hooks.Poststop.Timeout: -1 s',
  ),
  creation('an unknown namespace', withLinux({ Namespaces: [{ Type: 'planet' }] }), 'unknown value "planet"'),
  creation(
    'an unknown seccomp action',
    withLinux({ Seccomp: { DefaultAction: 'SCMP_ACT_SMILE' } }),
    'linux.seccomp.defaultAction: unknown value "SCMP_ACT_SMILE"',
  ),
  ...seccompWords,
  creation(
    'an unknown propagation',
    withLinux({ RootfsPropagation: 'outwards' }),
    'linux.rootfsPropagation: unknown value "outwards"',
  ),
  creation(
    'an unknown access to a device',
    withLinux({ Resources: { Devices: [{ Allow: true, Type: 'c', Access: 'rx' }] } }),
    'linux.resources.devices[0].access: unknown value "rx"',
  ),
  creation(
    'a device that leads out',
    withLinux({ Devices: [{ Path: '/dev/../../x', Type: 'c', Major: 1n, Minor: 3n }] }),
    'linux.devices[0].path: "/dev/../../x"',
  ),
  creation(
    'a device of no kind',
    withLinux({ Devices: [{ Path: '/dev/x', Type: 'z', Major: 1n, Minor: 3n }] }),
    'linux.devices[0].type: unknown value "z"',
  ),
  creation(
    'a device number that the kernel would cut',
    withLinux({ Devices: [{ Path: '/dev/x', Type: 'c', Major: 4097n, Minor: 3n }] }),
    'linux.devices[0].major: 4097, want 0 to 4095',
  ),
  creation(
    'a negative device number',
    withLinux({ Devices: [{ Path: '/dev/x', Type: 'b', Major: 1n, Minor: -1n }] }),
    'linux.devices[0].minor: -1, want 0 to 1048575',
  ),
  creation(
    'a rule for a device number that the kernel would cut',
    withLinux({ Resources: { Devices: [{ Allow: true, Type: 'c', Major: 1n, Minor: 1n << 20n }] } }),
    'linux.resources.devices[0].minor: 1048576, want -1 to 1048575',
  ),
  creation(
    'a limit of a device that cannot be',
    withLinux({
      Resources: { BlockIO: { ThrottleReadBpsDevice: [{ Major: 1n << 32n, Minor: 0n, Rate: 1n }] } },
    }),
    'linux.resources.blockIO.throttleReadBpsDevice[0].major: 4294967296, want 0 to 4095',
  ),
  creation(
    'a sysctl that leads out',
    withLinux({ Sysctl: { 'net/../kernel/core_pattern': 'x' } }),
    '"net/../kernel/core_pattern"',
  ),
  creation(
    'a storage that leads out',
    (request) => ({
      ...request,
      storages: [{ driver: 'local', mountPoint: '/run/kata-containers/../../etc/x' }],
    }),
    '"/run/kata-containers/../../etc/x"',
  ),
  creation(
    'a CDI device of another form',
    withSpec({ Annotations: { 'cdi.k8s.io/plugin': 'gpu0' } }),
    `Annotations['cdi.k8s.io/plugin']: "gpu0", want vendor/class=name`,
  ),
  creation(
    'one port for two streams',
    (request) => ({ ...request, stdoutPort: 7, stderrPort: 7 }),
    'stdout_port and stderr_port',
  ),
]

const addition = (what: string, change: DeepPartial<Process>, names: string): BadInput => ({
  rpc: 'ExecProcess',
  what,
  call: (agent) => agent.execProcess(execProcessRequest('living', UNMADE, ['true'], { process: change })),
  code: 'INVALID_ARGUMENT',
  names,
})

const signals = [65, 2 ** 31, 2 ** 32 - 1].flatMap((signal): BadInput[] =>
  ['', 'living', 'terminal'].map((execId) => ({
    rpc: 'SignalProcess',
    what: `the signal ${signal} for '${execId}'`,
    call: (agent) => agent.signalProcess({ containerId: 'living', execId, signal }),
    code: 'INVALID_ARGUMENT',
    names: `signal: unknown number ${signal}`,
  })),
)

const others: readonly BadInput[] = [
  {
    rpc: 'TtyWinResize',
    what: 'a terminal that is too large',
    call: (agent) =>
      agent.ttyWinResize({ containerId: 'living', execId: 'terminal', row: 65_536, column: 1 }),
    code: 'INVALID_ARGUMENT',
    names: '65536 x 1',
  },
  {
    rpc: 'UpdateContainer',
    what: 'a rule for a device of no kind',
    call: (agent) =>
      agent.updateContainer({ containerId: 'living', resources: { Devices: [{ Type: 'z', Access: 'r' }] } }),
    code: 'INVALID_ARGUMENT',
    names: 'linux.resources.devices[0].type: unknown value "z"',
  },
  {
    rpc: 'UpdateContainer',
    what: 'a rule for a device number that the kernel would cut',
    call: (agent) =>
      agent.updateContainer({
        containerId: 'living',
        resources: { Devices: [{ Type: 'c', Access: 'r', Major: 4096n, Minor: 1n }] },
      }),
    code: 'INVALID_ARGUMENT',
    names: 'linux.resources.devices[0].major: 4096, want -1 to 4095',
  },
  {
    rpc: 'UpdateContainer',
    what: 'CPUs that are none',
    call: (agent) => agent.updateContainer({ containerId: 'living', resources: { CPU: { Cpus: 'x-y' } } }),
    code: 'INTERNAL',
    names: 'cpuset',
  },
  ...['', 'no such', '../living'].map(
    (containerId): BadInput => ({
      rpc: 'StartContainer',
      what: `the id '${containerId}'`,
      call: (agent) => agent.startContainer({ containerId }),
      code: 'INTERNAL',
      names: 'Invalid container id',
    }),
  ),
]

/** Requests that the agent must refuse without any other effect. */
export const BAD_INPUT: readonly BadInput[] = [
  ...ids.map((id) =>
    creation(
      `the id ${JSON.stringify(id.slice(0, 9))}`,
      (request) => ({ ...request, containerId: id }),
      `'${id}'`,
      'INTERNAL',
    ),
  ),
  ...specs,
  ...processes.map(([what, change, names]) => creation(what, withProcess(change), names)),
  ...processes.map(([what, change, names]) => addition(what, change, names)),
  ...signals,
  ...others,
]
