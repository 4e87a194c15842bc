import { messageOf } from '../../base/errors.ts'
import { ensureMounted } from './mounts.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

const ROOT = '/sys/fs/cgroup'

/**
 * Mounts the unified hierarchy and hands every controller to the cgroups below its root. The agent stays in the root:
 * of all cgroups only that one may hold processes beside children with controllers (cgroup-v2.rst).
 */
export async function mountCgroupV2(context: BootContext): Promise<StepOutcome> {
  const mounted = await ensureMounted(context, {
    source: 'cgroup2',
    target: ROOT,
    type: 'cgroup2',
    flags: ['nosuid', 'nodev', 'noexec', 'relatime'],
    data: 'nsdelegate',
  })
  return outcomeOf([mounted, await delegateControllers(context)])
}

async function delegateControllers({ os, log }: BootContext): Promise<StepOutcome> {
  const available = await words(`${ROOT}/cgroup.controllers`)
  const delegated = await words(`${ROOT}/cgroup.subtree_control`)
  const missing = available.filter((controller) => !delegated.includes(controller))
  for (const controller of missing) {
    // One write each: a controller that refuses must not keep back the others.
    try {
      await os.files.write(`${ROOT}/cgroup.subtree_control`, `+${controller}`)
    } catch (error) {
      log.warn('cgroup controller not available to containers', { controller, error: messageOf(error) })
    }
  }
  return missing.length > 0 ? 'done' : 'already'

  async function words(path: string): Promise<readonly string[]> {
    return (await os.files.readText(path)).split(/\s+/).filter((word) => word !== '')
  }
}
