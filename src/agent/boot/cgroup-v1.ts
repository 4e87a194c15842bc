import type { MountEntry, MountFlag } from '../../os/files/mounts.ts'
import { ensureMounted, isMounted } from './mounts.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

const ROOT = '/sys/fs/cgroup'

/** The controllers that get a hierarchy of their own (spec A.4). */
const KNOWN_CONTROLLERS: readonly string[] = [
  'cpu',
  'cpuacct',
  'blkio',
  'cpuset',
  'memory',
  'devices',
  'freezer',
  'net_cls',
  'perf_event',
  'net_prio',
  'hugetlb',
  'pids',
  'rdma',
]

const ROOT_FLAGS: readonly MountFlag[] = ['nosuid', 'nodev', 'noexec']

/** The known controllers that /proc/cgroups shows as enabled (spec A.4: tab separated, the fourth column). */
export function enabledV1Controllers(procCgroups: string): readonly string[] {
  const enabled = procCgroups
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.split('\t'))
    .filter((columns) => columns[3] === '1')
    .map((columns) => columns[0])
  return KNOWN_CONTROLLERS.filter((controller) => enabled.includes(controller))
}

/** Mounts one hierarchy for each controller, on a tmpfs that is read-only once all are there. */
export async function mountCgroupV1(
  context: BootContext,
  controllers: readonly string[],
): Promise<StepOutcome> {
  const { files, mounts } = context.os
  const mounted = await mounts.list()
  if (isComplete(mounted, controllers)) return 'already'
  const data = 'mode=755'
  const root = { source: 'tmpfs', target: ROOT, type: 'tmpfs', flags: ROOT_FLAGS, data }
  const outcomes = [await ensureMounted(context, mounted, root)]
  for (const controller of controllers) {
    const flags: readonly MountFlag[] = [...ROOT_FLAGS, 'relatime']
    const target = `${ROOT}/${controller}`
    const hierarchy = { source: 'cgroup', target, type: 'cgroup', flags, data: controller }
    outcomes.push(await ensureMounted(context, mounted, hierarchy))
  }
  await mounts.mount({ ...root, flags: [...ROOT_FLAGS, 'remount', 'ro'] })
  const hierarchical = `${ROOT}/memory/memory.use_hierarchy`
  // Kernels from 5.11 on always account hierarchically, and newer ones have no such file.
  if ((await files.lstat(hierarchical)) !== undefined) await files.write(hierarchical, '1')
  return outcomeOf(outcomes)
}

/** The root becomes read-only last, so a predecessor that was interrupted shows by a writable one. */
function isComplete(mounted: readonly MountEntry[], controllers: readonly string[]): boolean {
  const root = mounted.findLast(({ mountPoint }) => mountPoint === ROOT)
  if (root?.type !== 'tmpfs' || !root.options.split(',').includes('ro')) return false
  return controllers.every((controller) => isMounted(mounted, `${ROOT}/${controller}`, 'cgroup'))
}
