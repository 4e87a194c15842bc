import { enabledV1Controllers, mountCgroupV1 } from './cgroup-v1.ts'
import { mountCgroupV2 } from './cgroup-v2.ts'
import type { BootContext, StepOutcome } from './step.ts'

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
