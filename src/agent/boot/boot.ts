import { setUpCgroups } from './cgroups.ts'
import { takeIdentity } from './identity.ts'
import { loadDeviceDrivers } from './modules.ts'
import { linkDevices, mountGuestFileSystems } from './mounts.ts'
import { setLoopbackUp } from './network.ts'
import { prepareOwnProcess } from './own-process.ts'
import type { BootContext, BootStep } from './step.ts'
import { runSteps } from './step.ts'

/**
 * Makes a bare guest fit for containers; runs while the API's socket is open already. Safe after a restart of the
 * agent: what is there is left as it is. On a system with an init of its own there is nothing to do. Throws INTERNAL
 * naming the step that failed.
 */
export async function boot(context: BootContext, init: boolean): Promise<void> {
  if (init) await runSteps(context, STEPS)
  else context.log.info('boot left to the system that started the agent')
}

const STEPS: readonly BootStep[] = [
  { name: 'own process', run: prepareOwnProcess },
  { name: 'mounts', run: mountGuestFileSystems },
  { name: 'device links', run: linkDevices },
  { name: 'cgroups', run: setUpCgroups },
  { name: 'loopback', run: setLoopbackUp },
  { name: 'device drivers', run: loadDeviceDrivers },
  { name: 'identity', run: takeIdentity },
]
