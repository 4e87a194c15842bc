import { userFolderOf } from '../storage/mount-point.ts'
import type { SandboxContext } from './context.ts'

/**
 * RemoveStaleVirtiofsShareMounts (behaviour spec, section C.11): looks at every mount point of the shared folders, by
 * which the kernel finds out, and lets go of, what the host has unmounted. Always succeeds.
 */
export async function removeStaleShareMounts(
  { os, config }: SandboxContext,
  _request: object,
  signal: AbortSignal,
): Promise<void> {
  const shared = `${config.sharedRoot}/shared/containers/`
  const mounts = await os.mounts.list().catch(() => [])
  for (const { mountPoint } of mounts) {
    if (!mountPoint.startsWith(`${userFolderOf(mountPoint)}${shared}`)) continue
    signal.throwIfAborted()
    // That it fails is what the look is for.
    await os.files.stat(mountPoint).catch(() => {})
  }
}
