import { messageOf } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'
import { ensureMounted } from './mounts.ts'
import { type BootContext, outcomeOf, type StepOutcome } from './step.ts'

const ROOT = '/sys/fs/cgroup'
const SUBTREE_CONTROL = `${ROOT}/cgroup.subtree_control`

/**
 * Mounts the unified hierarchy and hands every controller to the cgroups below its root. The agent stays in the root:
 * of all cgroups only that one may hold processes beside children with controllers (cgroup-v2.rst).
 */
export async function mountCgroupV2(context: BootContext): Promise<StepOutcome> {
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
