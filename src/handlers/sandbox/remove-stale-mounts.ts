import type { Call } from '../../state/request.ts'
import { userFolderOf } from '../storage/mount-point.ts'
import type { SandboxContext } from './context.ts'

/** RemoveStaleVirtiofsShareMounts: drops mounts of the shared folders that the host has unmounted. Ignores errors. */
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
