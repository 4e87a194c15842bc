import { CreateContainerRequest, ExecProcessRequest } from '../../src/gen/agent.ts'
import type { DeepPartial, Process, Spec } from '../../src/gen/oci.ts'
import { type RecordedLine, recordedRequest } from '../recordings/recorded-request.ts'
import { SHARED_FOLDER } from '../recordings/supplies.ts'

export const POD_HOSTNAME = 'shim-pod'

/** A process that only sleeps and does not handle SIGTERM. */
export const RESTING = ['/bin/sleep', '1000000']

/** Prints its pid and host name, echoes its input, and keeps running; it handles SIGTERM without exiting. */
export const TALKING = [
  '/bin/sh',
  '-c',
  `trap 'echo got TERM' TERM
   echo "pid $$ on $(hostname)"; echo problem >&2
   exec 3<&0; cat <&3 & wait $!; echo input ended
   sleep 1000000 & while true; do wait $!; done`,
]

export const INTERACTIVE = ['/bin/sh', '-c', 'read line; stty size; echo "typed $line"; exit 7']

/** Echoes its input, then prints the size of /dev/shm in KiB and the first process of its pid namespace. */
export const PROBE = [
  '/bin/sh',
  '-c',
  `cat; df -k /dev/shm | tail -n 1 | awk '{ print $2 }'; tr '\\0' ' ' < /proc/1/cmdline; exit 3`,
]

export const HUNGRY = ['/bin/dd', 'if=/dev/zero', 'of=/dev/null', 'bs=256M', 'count=1']

type ShimWords = Readonly<Record<'pause' | 'app' | 'added' | 'addedTerminal', RecordedLine>>

export const GO_WORDS: ShimWords = {
  pause: ['go-shim.cri-pod-five-containers', 7],
  app: ['go-shim.cri-pod-five-containers', 30],
  added: ['go-shim.exec-tty-pause-metrics', 13],
  addedTerminal: ['go-shim.exec-tty-pause-metrics', 21],
}

/** The requests of runtime-rs, which was recorded with a single container. */
export const RS_WORDS: ShimWords = {
  pause: ['runtime-rs.exec-tty-pause-metrics', 6],
  app: ['runtime-rs.exec-tty-pause-metrics', 6],
  added: ['runtime-rs.exec-tty-pause-metrics', 10],
  addedTerminal: ['runtime-rs.exec-tty-pause-metrics', 43],
}

interface ShimContainer {
  readonly words: ShimWords
  readonly kind: 'pause' | 'app'
  readonly args: readonly string[]
  readonly rootPath: string
  readonly cgroupsPath: string
}

/** A recorded specification with another command, root and cgroup, without the mounted files of the host. */
export function shimSpec({ words, kind, args, rootPath, cgroupsPath }: ShimContainer): DeepPartial<Spec> {
  const { OCI } = recordedRequest(CreateContainerRequest, ...words[kind])
  const type = kind === 'pause' ? 'pod_sandbox' : 'pod_container'
  return {
    ...OCI,
    // Some test machines do not let a process lower its score, as the recorded pause container does.
    Process: { ...OCI?.Process, Args: [...args], OOMScoreAdj: 0n },
    Root: { ...OCI?.Root, Path: rootPath },
    Annotations: { ...OCI?.Annotations, 'io.katacontainers.pkg.oci.container_type': type },
    Mounts: OCI?.Mounts.filter(({ source }) => !source.startsWith(SHARED_FOLDER)) ?? [],
    Linux: { ...OCI?.Linux, CgroupsPath: cgroupsPath },
  }
}

export function execProcess(
  words: ShimWords,
  args: readonly string[],
  kind: 'added' | 'addedTerminal' = 'added',
): DeepPartial<Process> {
  const { process } = recordedRequest(ExecProcessRequest, ...words[kind])
  return { ...process, Args: [...args], Cwd: '/' }
}
