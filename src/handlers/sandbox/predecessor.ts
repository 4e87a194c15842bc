import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { cgroupAt, usesCgroupV2 } from '../container/cgroup.ts'
import type { OciRuntime } from '../container/oci-runtime.ts'
import { bundleOf } from './bundle.ts'
import type { SandboxConfig } from './dependencies.ts'
import { emptyFolder } from './empty-folder.ts'

/**
 * Takes away what an agent that died has left: containers, which nobody can talk to any more, their mounts and
 * bundles, and the sandbox's namespaces. Does what it can, logs what it cannot, and never rejects.
 */
export async function clearPredecessor(options: {
  readonly os: Os
  readonly log: Logger
  readonly config: SandboxConfig
  readonly runtime: OciRuntime
}): Promise<void> {
  const { os, log, config, runtime } = options
  const attempt = async (what: string, work: () => Promise<void>) => {
    try {
      await work()
    } catch (error) {
      log.error('clean-up after a dead agent failed', { what, error: messageOf(error) })
    }
  }
  let count = 0
  await attempt('containers', async () => {
    for (const id of await runtime.list()) {
      count++
      await attempt(`processes of ${id}`, () => killLeft(options, id))
      await attempt(`container ${id}`, () => runtime.erase(id))
    }
  })
  for (const folder of [config.sharedRoot, config.sandboxNamespaceDir]) {
    await attempt(folder, () => emptyFolder(os, folder))
  }
  log.critical('the agent was restarted: its sandbox is lost', { containers: count })
}

/** Kills by the cgroup that the container's config.json names: its runtime kills but the first process. */
async function killLeft(
  { os, log, config }: { readonly os: Os; readonly log: Logger; readonly config: SandboxConfig },
  id: string,
): Promise<void> {
  const text = await os.files.readText(bundleOf(config.sharedRoot, id).config)
  const path = /"cgroupsPath":"(\/[^"\\]+)"/.exec(text)?.[1]
  if (path !== undefined) await cgroupAt(os, path, await usesCgroupV2(os), log).killAll()
}
