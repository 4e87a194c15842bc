import { AgentError } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'

/** What a driver has made. */
export interface Attachment {
  readonly mountPoint: string
  /** `mount`: something is mounted there; `directory`: it is a plain directory. */
  readonly kind: 'mount' | 'directory'
  /** Stays until the sandbox ends although nobody uses it: its contents outlive a container that is restarted. */
  readonly keep: boolean
  /** Takes back what the driver did besides, once the mount point is gone. Never throws. */
  readonly release?: () => Promise<void>
}

type Kernel = Pick<Os, 'files' | 'mounts'>

/** Whether what the driver made is still there. */
export async function isThere(os: Kernel, { kind, mountPoint }: Attachment): Promise<boolean> {
  if (kind === 'mount') return isMounted(os, mountPoint)
  return (await os.files.lstat(mountPoint))?.kind === 'directory'
}

/**
 * Takes it away again (spec E.1): unmounts, then removes the directory, which must be empty; a file that was mounted
 * over is left. What is gone already is fine. Then it takes back what the driver did besides.
 */
export async function detach(os: Kernel, { mountPoint, release }: Attachment): Promise<void> {
  await detachMountPoint(os, mountPoint)
  await release?.()
}

async function detachMountPoint(os: Kernel, mountPoint: string): Promise<void> {
  if (await isMounted(os, mountPoint)) await os.mounts.unmount(mountPoint)
  if (await isMounted(os, mountPoint)) {
    throw new AgentError('INTERNAL', `${mountPoint} is still mounted after its unmount`)
  }
  const status = await os.files.lstat(mountPoint)
  if (status === undefined || status.kind === 'file') return
  if (status.kind !== 'directory') {
    throw new AgentError('INTERNAL', `${mountPoint} is a ${status.kind}, neither directory nor file`)
  }
  if ((await os.files.list(mountPoint)).length > 0) {
    throw new AgentError('INTERNAL', `${mountPoint}: directory is not empty when clean up storage`)
  }
  await os.files.removeDirectory(mountPoint)
}

async function isMounted(os: Kernel, path: string): Promise<boolean> {
  return (await os.mounts.list()).some(({ mountPoint }) => mountPoint === path)
}
