import type { DeepPartial, Process, Spec } from '../../src/gen/oci.ts'
import { containerSpec } from '../../src/microvm/run/container-spec.ts'
import { processRequest } from '../support/containers/container-requests.ts'
import { SHM_FOLDER } from './sandbox-steps.ts'

/** The host name that the sandbox gives to all its containers. */
export const POD_HOSTNAME = 'shim-pod'

/** A process that only sleeps, and has no handler for SIGTERM. */
export const RESTING = ['/bin/sleep', '1000000']

/** Prints its pid and host name, echoes its input, and then keeps running; it handles SIGTERM without exiting. */
export const TALKING = [
  '/bin/sh',
  '-c',
  `trap 'echo got TERM' TERM
   echo "pid $$ on $(hostname)"; echo problem >&2
   exec 3<&0; cat <&3 & wait $!; echo input ended
   sleep 1000000 & while true; do wait $!; done`,
]

/** Prints the size of its terminal before and after a line of input. */
export const INTERACTIVE = ['/bin/sh', '-c', 'stty size; read line; stty size; echo "typed $line"; exit 7']

/** A probe: echoes its input, then prints the size of /dev/shm in KiB and the first process of its pid namespace. */
export const PROBE = [
  '/bin/sh',
  '-c',
  `cat; df -k /dev/shm | tail -n 1 | awk '{ print $2 }'; tr '\\0' ' ' < /proc/1/cmdline; exit 3`,
]

/** Allocates more memory than the limit of any container here. */
export const HUNGRY = ['/bin/dd', 'if=/dev/zero', 'of=/dev/null', 'bs=256M', 'count=1']

/** The parts of a container's specification that differ between containers. */
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
 * The specification as the agent receives it (D.1): without network, cgroup and pid namespaces, hooks, and limits of
 * devices, pids and block I/O. The sources of mounts are paths in the guest.
 */
export function shimSpec({ id, type, args, rootPath, cgroupsPath }: ShimContainer): DeepPartial<Spec> {
  const user = { uid: 0, gid: 0, additionalGids: [0, 10] }
  const unset = { env: [], cwd: '/', terminal: undefined, hostname: POD_HOSTNAME }
  const spec = containerSpec({ id, args, user, rootPath, ...unset })
  const shared = { destination: '/dev/shm', type: 'bind', source: SHM_FOLDER, options: ['rbind'] }
  return {
    ...spec,
    // The usual limit of open files may exceed that of a developer's machine.
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

/** An exec process with the same rights as the container. */
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
