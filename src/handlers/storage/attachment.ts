import { AgentError } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'
import { unmountTree } from './mount-storage.ts'

/** What a driver has made. */
export interface Attachment {
  readonly mountPoint: string
  /**
   * `mount`: something is mounted there; `copy`: the driver made all that is there, and mounts over it when it has to;
   * `directory`: it is a plain directory, and `found`: it was mounted by somebody else. These two are left as they are.
   */
  readonly kind: 'mount' | 'directory' | 'copy' | 'found'
  /** Stays until the sandbox ends although nobody uses it: its contents outlive a container that is restarted. */
  readonly keep: boolean
  /** Says why it is of no use any more, such as a disk that was pulled out; undefined as long as it is. */
  readonly lost?: () => Promise<string | undefined>
  /** Ends what the driver does to it all the time, before it is taken away. Never throws, and may be called twice. */
  readonly end?: () => Promise<void>
  /** Takes back what the driver did besides, once a mount or a copy is gone. Never throws. */
  readonly release?: () => Promise<void>
}

type Kernel = Pick<Os, 'files' | 'mounts'>

/** Whether what the driver made is still there. */
export async function isThere(os: Kernel, { kind, mountPoint }: Attachment): Promise<boolean> {
  if (kind === 'mount' || kind === 'found') return isMounted(os, mountPoint)
  const found = (await os.files.lstat(mountPoint))?.kind
  return kind === 'copy' ? found !== undefined : found === 'directory'
}

/**
 * Takes it away again (spec E.1): unmounts it with what came along, but nothing that `isOthers`; then removes the
 * directory, which must be empty unless it is a copy; a file that was mounted over is left. What is gone already is fine.
 * Then it takes back what the driver did besides.
 */
export async function detach(
  os: Kernel,
  attachment: Attachment,
  isOthers: (mountPoint: string) => boolean,
): Promise<void> {
  const { kind, mountPoint } = attachment
  await attachment.end?.()
  if (kind === 'mount' || kind === 'copy') {
    await unmountTree(os.mounts, mountPoint, isOthers)
    if (await isMounted(os, mountPoint)) {
      throw new AgentError('INTERNAL', `${mountPoint} is still mounted after its unmount`)
    }
    if (kind === 'copy') await os.files.removeTree(mountPoint)
    else await removeMountPoint(os, mountPoint)
  }
  await attachment.release?.()
}

async function removeMountPoint(os: Kernel, mountPoint: string): Promise<void> {
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
