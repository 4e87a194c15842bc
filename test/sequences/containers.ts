import type { DeepPartial, Process, Spec } from '../../src/gen/oci.ts'
import { containerSpec } from '../../src/microvm/run/container-spec.ts'
import { processRequest } from '../support/containers/container-requests.ts'
import { SHM_FOLDER } from './sandbox-steps.ts'

/** The host name that the sandbox gives to all its containers. */
export const POD_HOSTNAME = 'shim-pod'

/** A process that does nothing, and has no handler for SIGTERM. */
export const RESTING = ['/bin/sleep', '1000000']

/** Says who and where it is, echoes its input, and then lives on, whatever SIGTERM it gets. */
export const TALKING = [
  '/bin/sh',
  '-c',
  `trap 'echo got TERM' TERM
   echo "pid $$ on $(hostname)"; echo problem >&2
   exec 3<&0; cat <&3 & wait $!; echo input ended
   sleep 1000000 & while true; do wait $!; done`,
]

/** On a terminal: tells the size of it before and after a line of input. */
export const INTERACTIVE = ['/bin/sh', '-c', 'stty size; read line; stty size; echo "typed $line"; exit 7']

/** A probe: echoes its input, then the kilobytes of /dev/shm and the first process of its pid namespace. */
export const PROBE = [
  '/bin/sh',
  '-c',
  `cat; df -k /dev/shm | tail -n 1 | awk '{ print $2 }'; tr '\\0' ' ' < /proc/1/cmdline; exit 3`,
]

/** Needs more memory than any container here may have. */
export const HUNGRY = ['/bin/dd', 'if=/dev/zero', 'of=/dev/null', 'bs=256M', 'count=1']

/** What a shim makes of a container's specification. */
interface ShimContainer {
  readonly id: string
  readonly type: 'pod_sandbox' | 'pod_container'
  readonly args: readonly string[]
  readonly rootPath: string
  readonly cgroupsPath: string
}

const MIB = 2n ** 20n
const LIMITS = {
  memory: { Limit: 128n * MIB, Swap: 128n * MIB },
  cpu: { Shares: 1024n, Quota: 200_000n, Period: 100_000n },
}

/**
 * The specification as it arrives (D.1): no network, cgroup or pid namespace, no hooks, no limits of devices, pids and
 * block I/O, and sources of mounts that are paths of the guest.
 */
export function shimSpec({ id, type, args, rootPath, cgroupsPath }: ShimContainer): DeepPartial<Spec> {
  const user = { uid: 0, gid: 0, additionalGids: [0, 10] }
  const unset = { env: [], cwd: '/', terminal: undefined, hostname: POD_HOSTNAME }
  const spec = containerSpec({ id, args, user, rootPath, ...unset })
  const shared = { destination: '/dev/shm', type: 'bind', source: SHM_FOLDER, options: ['rbind'] }
  return {
    ...spec,
    // The usual limit of open files is more than a developer's machine may allow.
    Process: { ...spec.Process, Rlimits: [{ Type: 'RLIMIT_NOFILE', Soft: 1024n, Hard: 1024n }] },
    Annotations: {
      'io.katacontainers.pkg.oci.container_type': type,
      'io.kubernetes.cri.container-name': type === 'pod_sandbox' ? '' : 'app',
    },
    Mounts: spec.Mounts.map((mount) => (mount.destination === shared.destination ? shared : mount)),
    Linux: {
      ...spec.Linux,
      CgroupsPath: cgroupsPath,
      Namespaces: ['ipc', 'uts', 'mount'].map((Type) => ({ Type })),
      Resources: { Memory: LIMITS.memory, CPU: LIMITS.cpu },
    },
  }
}

/** A process that is added to a container with no other rights than those it has. */
export function execProcess(args: readonly string[], terminal = false): DeepPartial<Process> {
  return processRequest(args, {
    terminal,
    process: {
      User: { UID: 0, GID: 0, AdditionalGids: [], Username: '' },
      Env: ['PATH=/usr/bin:/bin', ...(terminal ? ['TERM=xterm'] : [])],
      Capabilities: undefined,
      ...(terminal ? { ConsoleSize: { Height: 24, Width: 80 } } : {}),
    },
  })
}
