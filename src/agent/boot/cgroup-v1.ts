import type { MountFlag } from '../../os/os.ts'
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
  if (await isComplete(context, controllers)) return 'already'
  const data = 'mode=755'
  const root = { source: 'tmpfs', target: ROOT, type: 'tmpfs', flags: ROOT_FLAGS, data }
  const outcomes = [await ensureMounted(context, root)]
  for (const controller of controllers) {
    const flags: readonly MountFlag[] = [...ROOT_FLAGS, 'relatime']
    const target = `${ROOT}/${controller}`
    outcomes.push(
      await ensureMounted(context, { source: 'cgroup', target, type: 'cgroup', flags, data: controller }),
    )
  }
  await mounts.mount({ ...root, flags: [...ROOT_FLAGS, 'remount', 'ro'] })
  const hierarchy = `${ROOT}/memory/memory.use_hierarchy`
  // Kernels from 5.11 on always account hierarchically, and newer ones have no such file.
  if ((await files.lstat(hierarchy)) !== undefined) await files.write(hierarchy, '1')
  return outcomeOf(outcomes)
}

/** The root becomes read-only last, so a predecessor that was interrupted shows by a writable one. */
async function isComplete(context: BootContext, controllers: readonly string[]): Promise<boolean> {
  const root = (await context.os.mounts.list()).findLast(({ mountPoint }) => mountPoint === ROOT)
  if (root?.type !== 'tmpfs' || !root.options.split(',').includes('ro')) return false
  for (const controller of controllers) {
    if (!(await isMounted(context, `${ROOT}/${controller}`, 'cgroup'))) return false
  }
  return true
}
