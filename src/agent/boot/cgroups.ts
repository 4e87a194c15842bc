import { errnoOf, messageOf } from '../../base/errors.ts'
import { guestMemory, reserveOf } from '../../handlers/cgroup/memory-reserve.ts'
import type { Files } from '../../os/files/files.ts'
import type { MountEntry, MountFlag, Mounts } from '../../os/files/mounts.ts'
import { pidsWhere, procStatFields } from '../../os/process/proc-stat.ts'
import { ensureMounted, isMounted } from './mounts.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

/** Mounts cgroup v2, unless the configuration asks for v1 and the kernel has all {@link NEEDED_V1_CONTROLLERS}. */
export async function setUpCgroups(context: BootContext): Promise<StepOutcome> {
  const { config, log, os } = context
  if (config.unifiedCgroupHierarchy || config.cgroupNoV1 === 'all') return mountCgroupV2(context)
  // /proc/cgroups does not tell which controllers `cgroup_no_v1=` keeps for v2.
  const withheld = config.cgroupNoV1.split(',')
  const enabled = enabledV1Controllers(await os.files.readText('/proc/cgroups'))
  const controllers = enabled.filter((controller) => !withheld.includes(controller))
  const missing = NEEDED_V1_CONTROLLERS.filter((controller) => !controllers.includes(controller))
  const refusal = missing.length === 0 ? await refusalOfV1(os.mounts) : undefined
  if (missing.length === 0 && refusal === undefined) return mountCgroupV1(context, controllers)
  const lacking = missing.length > 0 ? missing.join(' ') : `one of ${NEEDED_V1_CONTROLLERS.join(' ')}`
  const because =
    refusal ?? 'the kernel has none for v1, or its command line has cgroup_no_v1 or cgroup_disable'
  log.warn('cgroup v1 requested, but it lacks controllers: using v2', { controllers: lacking, because })
  return mountCgroupV2(context)
}

/** Without these, containers would run without device rules, limits or pausing. */
const NEEDED_V1_CONTROLLERS = ['devices', 'cpu', 'cpuset', 'memory', 'pids', 'freezer']

const ROOT = '/sys/fs/cgroup'

/** Each of these controllers gets a hierarchy of its own. */
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

/**
 * Returns why the kernel does not mount the needed controllers as v1. From Linux 6.12 on, /proc/cgroups also names
 * controllers that are built for v2 alone (CONFIG_MEMCG_V1, CONFIG_CPUSETS_V1). The test mounts one hierarchy with all of
 * them: a refused mount takes no controller from v2.
 */
async function refusalOfV1(mounts: Mounts): Promise<string | undefined> {
  const data = NEEDED_V1_CONTROLLERS.join(',')
  try {
    await mounts.mount({ source: 'cgroup', target: ROOT, type: 'cgroup', flags: ROOT_FLAGS, data })
  } catch (error) {
    // EBUSY: the previous agent mounted each of them separately.
    return errnoOf(error) === 'EBUSY' ? undefined : messageOf(error)
  }
  await mounts.unmount(ROOT)
  return undefined
}

/** Reads /proc/cgroups: columns are separated by tabs, and the fourth one says whether a controller is enabled. */
export function enabledV1Controllers(procCgroups: string): readonly string[] {
  const enabled = procCgroups
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.split('\t'))
    .filter((columns) => columns[3] === '1')
    .map((columns) => columns[0])
  return KNOWN_CONTROLLERS.filter((controller) => enabled.includes(controller))
}

/** Mounts one hierarchy for each controller on a tmpfs, which becomes read-only at the end. */
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
  // Kernels from 5.11 on always account hierarchically, and newer ones lack this file.
  if ((await files.lstat(hierarchical)) !== undefined) await files.write(hierarchical, '1')
  return outcomeOf(outcomes)
}

/** The tmpfs becomes read-only last, so a writable one remains from an unfinished boot. */
function isComplete(mounted: readonly MountEntry[], controllers: readonly string[]): boolean {
  const root = mounted.findLast(({ mountPoint }) => mountPoint === ROOT)
  if (root?.type !== 'tmpfs' || !root.options.split(',').includes('ro')) return false
  return controllers.every((controller) => isMounted(mounted, `${ROOT}/${controller}`, 'cgroup'))
}

const SUBTREE_CONTROL = `${ROOT}/cgroup.subtree_control`

/** Enables every controller below the root, and gives vminit, the broker and the agent a cgroup of their own. */
async function mountCgroupV2(context: BootContext): Promise<StepOutcome> {
  const mounted = await ensureMounted(context, await context.os.mounts.list(), {
    source: 'cgroup2',
    target: ROOT,
    type: 'cgroup2',
    flags: ['nosuid', 'nodev', 'noexec', 'relatime'],
    data: 'nsdelegate',
  })
  const enabled = await enableControllers(context)
  return outcomeOf([mounted, enabled, await moveIntoOwnCgroup(context)])
}

/** The cgroup of vminit, the broker, the agent and the programs that they run. */
const OWN_CGROUP = `${ROOT}/agent`

/** Ten times the weight of all containers together. */
const CPU_WEIGHT = 1000

/** Failures are only logged, because the guest works without this cgroup. */
async function moveIntoOwnCgroup({ os, config, log }: BootContext): Promise<StepOutcome> {
  const { files, system } = os
  const members = `${OWN_CGROUP}/cgroup.procs`
  if ((await files.stat(members)) !== undefined) {
    if ((await wordsOf(files, members)).includes(`${system.pid}`)) return 'already'
  }
  const set = async (file: string, value: string) => {
    try {
      await files.write(`${OWN_CGROUP}/${file}`, value)
    } catch (error) {
      log.warn("the agent's cgroup is not set up", { file, error: messageOf(error) })
    }
  }
  await files.makeDirectories(OWN_CGROUP)
  await set('memory.min', `${reserveOf(config.memoryReserve, (await guestMemory(files)).total)}`)
  await set('cpu.weight', `${CPU_WEIGHT}`)
  // The children of vminit, which is process 1, are the agent and the broker.
  const children = await pidsWhere(files, (stat) => procStatFields(stat)[1] === '1')
  for (const pid of new Set([1, system.pid, ...children])) await set('cgroup.procs', `${pid}`)
  return 'done'
}

async function enableControllers(context: BootContext): Promise<StepOutcome> {
  const { files } = context.os
  const available = await wordsOf(files, `${ROOT}/cgroup.controllers`)
  const enabled = await wordsOf(files, SUBTREE_CONTROL)
  const missing = available.filter((controller) => !enabled.includes(controller))
  if (missing.length === 0) return 'already'
  // One write for all controllers, because each write makes the kernel wait for all processors. It accepts all or none.
  if (await enable(context, missing)) return 'done'
  for (const controller of missing) await enable(context, [controller])
  return 'done'
}

async function enable({ os, log }: BootContext, controllers: readonly string[]): Promise<boolean> {
  try {
    await os.files.write(SUBTREE_CONTROL, controllers.map((controller) => `+${controller}`).join(' '))
    return true
  } catch (error) {
    const fields = { controllers: controllers.join(' '), error: messageOf(error) }
    log.warn('cgroup controllers not enabled for containers', fields)
    return false
  }
}

async function wordsOf(files: Files, path: string): Promise<readonly string[]> {
  return (await files.readText(path)).split(/\s+/).filter((word) => word !== '')
}
