import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import type { StateStore } from '../../state/state-store.ts'
import type { ContainersCgroup } from '../cgroup/containers-cgroup.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { discardStored, isOfProcess } from '../stdio/stored-descriptors.ts'
import { unmapStale } from '../storage/drivers/image/verity.ts'
import { clearFolder, emptyFolder } from '../storage/empty-folder.ts'
import { emptySharedRoot } from './empty-shared-root.ts'
import { removeStaleResolvConf } from './resolv-conf.ts'
import { ownNamespaces, type SandboxConfig } from './sandbox-config.ts'

/** The saved state that is removed. The sandbox's record stays, because it says that the sandbox is lost. */
const STATES: readonly string[] = ['containers', 'copies', 'names', 'oom', 'requests', 'storages']

/** Removes all containers, mounts, bundles and namespaces of the previous agent. Logs failed steps, and never rejects. */
export async function cleanUpAfterCrash(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: SandboxConfig
  readonly state: StateStore
  readonly runtime: OciRuntime
  readonly containersCgroup: ContainersCgroup
}): Promise<void> {
  const { os, log, config, state, runtime, containersCgroup } = options
  const attempt = async (what: string, work: () => Promise<void>) => {
    try {
      await work()
    } catch (error) {
      log.error('clean-up after a dead agent failed', { what, error: messageOf(error) })
    }
  }
  await attempt('runs of the runtime', () => runtime.killOrphans((pid) => containersCgroup.holds(pid)))
  const ids: string[] = []
  await attempt('containers', async () => void ids.push(...(await runtime.list())))
  await attempt('processes', () => containersCgroup.killAll())
  for (const id of ids) await attempt(`container ${id}`, () => runtime.erase(id))
  await attempt('streams', () => discardStored(os.descriptors, os.streams, isOfProcess))
  // Unmount before the file is removed, because the file identifies the mount.
  await attempt('resolv.conf', () => removeStaleResolvConf(os, config.sharedRoot))
  await attempt(config.sharedRoot, () => emptySharedRoot(os, config.sharedRoot))
  await attempt(config.sandboxNamespaceDir, () => emptyFolder(os, config.sandboxNamespaceDir))
  await attempt(ownNamespaces(config), () => clearFolder(os, ownNamespaces(config)))
  await attempt('mapped layers', () => unmapStale(os))
  await containersCgroup.remove()
  // The policy is not in the list, because it stays in force.
  for (const name of STATES) await attempt(`saved ${name}`, async () => state.remove(name))
  log.critical('agent restarted: sandbox lost', { containers: ids.length })
}
