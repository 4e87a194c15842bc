import { createHash } from 'node:crypto'
import { basename, dirname } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type { CgroupLimits, LimitController } from '../../../os/cgroup/limited-cgroups.ts'
import type { Acceleration } from '../../qemu/host.ts'
import { NO_LIMITS, type VmSpec } from '../../spec/spec.ts'

/** What QEMU, the holder and the daemons of devices need besides the guest's memory. */
const OVERHEAD_MIB = 512
/** An emulating QEMU keeps up to 1 GiB of translated code. */
const EMULATION_MIB = 1024
/** Threads of all processes besides those of the CPUs; QEMU has up to 64 for its disks, virtiofsd as many. */
const OVERHEAD_TASKS = 512

/**
 * The step that makes the cgroup of an instance; undefined where none can be made. Throws FAILED_PRECONDITION naming the
 * limit that the specification wants and this host cannot hold.
 */
export function cgroupOf(
  spec: VmSpec,
  host: { readonly acceleration: Acceleration; readonly cgroups?: ReadonlySet<LimitController> | undefined },
  folder: string,
) {
  const { memoryMib, cpuMilli, tasks } = spec.limits ?? NO_LIMITS
  const wanted = {
    memory: ['memory_mib', memoryMib],
    cpu: ['cpu_milli', cpuMilli],
    pids: ['tasks', tasks],
  } as const
  for (const [controller, [field, value]] of Object.entries(wanted)) {
    if (value === 0 || host.cgroups?.has(controller as LimitController)) continue
    const text = `limits.${field}: this host has no writable cgroup with the controller ${controller}`
    throw new AgentError('FAILED_PRECONDITION', text)
  }
  if (host.cgroups === undefined) return undefined
  const standard = defaultsOf(spec, host.acceleration)
  const limits: CgroupLimits = {
    memoryBytes: (memoryMib || standard.memoryMib) * 2 ** 20,
    cpuMilli: cpuMilli || undefined,
    tasks: tasks || standard.tasks,
  }
  return { step: 'cgroup', words: ['', cgroupName(folder)], limits } as const
}

/** Daemons of other state folders may have an instance of the same name. */
export function cgroupName(folder: string): string {
  const state = dirname(dirname(folder))
  return `${basename(folder)}-${createHash('sha256').update(state).digest('hex').slice(0, 8)}`
}

function defaultsOf({ board }: VmSpec, acceleration: Acceleration) {
  const { memoryMib, room } = board
  const overheadMib = OVERHEAD_MIB + (acceleration === 'tcg' ? EMULATION_MIB : 0)
  return {
    memoryMib: memoryMib + (room?.memoryMib ?? 0) + overheadMib,
    tasks: defaultTasks(board),
  }
}

export function defaultTasks({
  cpus,
  room,
}: {
  readonly cpus: number
  readonly room?: { readonly cpus: number } | undefined
}): number {
  return cpus + (room?.cpus ?? 0) + OVERHEAD_TASKS
}
