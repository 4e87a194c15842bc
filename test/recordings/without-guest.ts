import type { RecordedLine, Recording } from '../../src/ctl/recording/recording.ts'
import { CreateContainerRequest, CreateSandboxRequest, ExecProcessRequest } from '../../src/gen/agent.ts'

/**
 * Adapts a shim's recording for an agent on this machine: files appear in place of the virtio-fs device, and forbidden
 * changes are left out.
 */
export function withoutGuest({ name, lines }: Recording): Recording {
  return { name, lines: lines.map(adapted) }
}

function adapted(line: RecordedLine): RecordedLine {
  if (line.kind !== 'call' || line.requestBytes === undefined) return line
  const change = CHANGES[line.method]
  return change === undefined ? line : { ...line, requestBytes: change(line.requestBytes) }
}

const CHANGES: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  CreateSandbox: (bytes) => {
    const request = CreateSandboxRequest.decode(bytes)
    const storages = request.storages.filter(({ driver }) => driver !== 'virtio-fs')
    return Buffer.from(CreateSandboxRequest.encode({ ...request, storages }).finish())
  },
  CreateContainer: (bytes) => {
    const request = CreateContainerRequest.decode(bytes)
    const process = request.OCI?.Process
    // Some test machines do not let a process lower its oom_score_adj, as the pause container does.
    if (process !== undefined && process.OOMScoreAdj < 0n) process.OOMScoreAdj = 0n
    return Buffer.from(CreateContainerRequest.encode(request).finish())
  },
  ExecProcess: (bytes) => {
    const request = ExecProcessRequest.decode(bytes)
    const { process } = request
    if (process !== undefined) process.Args = withLimitsV1(process.Args)
    return Buffer.from(ExecProcessRequest.encode(request).finish())
  },
}

/** Prints a container's limits on cgroup v1 as on v2. */
function withLimitsV1(words: readonly string[]): string[] {
  if (words.join(' ') === 'cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max') return ['sh', '-c', LIMITS]
  return words.map((word) => word.replaceAll('cgroup/memory.max', `cgroup/${MEMORY_LIMIT}`))
}

const MEMORY_LIMIT = 'memory/memory.limit_in_bytes'
const CPU_LIMIT = 'cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us'
const LIMITS = `cd /sys/fs/cgroup; cat ${MEMORY_LIMIT}; echo $(cat ${CPU_LIMIT})`
