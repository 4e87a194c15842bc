import { messageOf } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'
import type { MountEntry, MountFlag } from '../../os/files/mounts.ts'
import { ensureMounted, isMounted } from './mounts.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

/**
 * Sets up /sys/fs/cgroup: v2, unless the command line asks for v1 and the kernel still has it (v1 without the devices
 * controller is of no use to containers).
 */
export async function setUpCgroups(context: BootContext): Promise<StepOutcome> {
  const { config, log, os } = context
  if (config.unifiedCgroupHierarchy || config.cgroupNoV1 === 'all') return mountCgroupV2(context)
  const controllers = enabledV1Controllers(await os.files.readText('/proc/cgroups'))
  if (!controllers.includes('devices')) {
    log.warn('cgroup v1 was asked for, but the kernel has none: using v2')
    return mountCgroupV2(context)
  }
  return mountCgroupV1(context, controllers)
}

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
async function mountCgroupV1(context: BootContext, controllers: readonly string[]): Promise<StepOutcome> {
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

const SUBTREE_CONTROL = `${ROOT}/cgroup.subtree_control`

/**
 * Mounts the unified hierarchy and hands every controller to the cgroups below its root. The agent stays in the root:
 * of all cgroups only that one may hold processes beside children with controllers (cgroup-v2.rst).
 */
async function mountCgroupV2(context: BootContext): Promise<StepOutcome> {
  const mounted = await ensureMounted(context, await context.os.mounts.list(), {
    source: 'cgroup2',
    target: ROOT,
    type: 'cgroup2',
    flags: ['nosuid', 'nodev', 'noexec', 'relatime'],
    data: 'nsdelegate',
  })
  return outcomeOf([mounted, await delegateControllers(context)])
}

async function delegateControllers(context: BootContext): Promise<StepOutcome> {
  const { files } = context.os
  const available = await wordsOf(files, `${ROOT}/cgroup.controllers`)
  const delegated = await wordsOf(files, SUBTREE_CONTROL)
  const missing = available.filter((controller) => !delegated.includes(controller))
  if (missing.length === 0) return 'already'
  // All by one write, which the kernel takes or refuses as a whole: each write has it wait for all its processors.
  if (await delegate(context, missing)) return 'done'
  for (const controller of missing) await delegate(context, [controller])
  return 'done'
}

async function delegate({ os, log }: BootContext, controllers: readonly string[]): Promise<boolean> {
  try {
    await os.files.write(SUBTREE_CONTROL, controllers.map((controller) => `+${controller}`).join(' '))
    return true
  } catch (error) {
    const fields = { controllers: controllers.join(' '), error: messageOf(error) }
    log.warn('cgroup controllers not handed to containers', fields)
    return false
  }
}

async function wordsOf(files: Files, path: string): Promise<readonly string[]> {
  return (await files.readText(path)).split(/\s+/).filter((word) => word !== '')
}
