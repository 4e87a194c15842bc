import type { Call } from '../../state/request.ts'
import { userFolderOf } from '../storage/mount-point.ts'
import type { SandboxContext } from './context.ts'

/**
 * RemoveStaleVirtiofsShareMounts: calls stat(2) on every mount point of the shared folders, which makes the kernel drop
 * those that the host has unmounted. Always succeeds.
 */
export async function removeStaleShareMounts(
  { os, config }: Pick<SandboxContext, 'os' | 'config'>,
  _request: object,
  { signal }: Pick<Call, 'signal'>,
): Promise<void> {
  const shared = `${config.sharedRoot}/shared/containers/`
  const mounts = await os.mounts.list().catch(() => [])
  for (const { mountPoint } of mounts) {
    if (!mountPoint.startsWith(`${userFolderOf(mountPoint)}${shared}`)) continue
    signal.throwIfAborted()
    // The stat is expected to fail; it makes the kernel drop the stale mount.
    await os.files.stat(mountPoint).catch(() => {})
  }
}
