import { AgentError, errnoOf } from '../../base/errors.ts'
import { isMountPoint } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'
import { unmountTree } from './mount-storage.ts'

/** A storage that a driver has attached, with what is needed to detach it. */
export interface Attachment {
  readonly mountPoint: string
  /** `copy`: all content is the driver's. Detaching unmounts nothing for `directory` and `existing` (mounted before). */
  readonly kind: 'mount' | 'directory' | 'copy' | 'existing'
  /** Whether it stays attached without references until the sandbox ends, so that a restarted container finds its data. */
  readonly keep: boolean
  /** The disk's device node; undefined when the storage is not a disk. */
  readonly device?: string
  /** Returns why the storage can no longer be used, such as a removed disk; undefined while it works. */
  readonly fault?: () => Promise<string | undefined>
  /** Stops the driver's background work on it; runs before the unmount. Never throws, and may be called twice. */
  readonly stop?: () => Promise<void>
  /** Undoes the driver's other steps; runs after the mount or the copy is removed. Never throws. */
  readonly onRemove?: () => Promise<void>
  /** Lets the driver rebuild `fault`, `stop` and `onRemove` in the next agent. */
  readonly undo?: Readonly<Record<string, string>>
}

/** The part of an attachment that outlives the agent. */
export type AttachmentData = Pick<Attachment, 'mountPoint' | 'kind' | 'keep' | 'device'> &
  Required<Pick<Attachment, 'undo'>>

/** The part of an attachment that the driver rebuilds in the next agent. */
export type AttachmentWork = Pick<Attachment, 'fault' | 'stop' | 'onRemove'>

type Kernel = Pick<Os, 'files' | 'mounts'>

export async function isPresent(os: Kernel, { kind, mountPoint }: Attachment): Promise<boolean> {
  if (kind === 'mount' || kind === 'existing') return isMountPoint(os, mountPoint)
  const fileKind = (await os.files.lstat(mountPoint))?.kind
  return kind === 'copy' ? fileKind !== undefined : fileKind === 'directory'
}

/**
 * Stops the driver's background work, unmounts the storage, removes the mount point, then calls `onRemove`. Mounts for
 * which `isOtherStorage` returns true stay, and so does a mount point that is a file. Throws INTERNAL when the storage
 * stays mounted or its directory is not empty.
 */
export async function detach(
  os: Kernel,
  attachment: Attachment,
  isOtherStorage: (mountPoint: string) => boolean,
): Promise<void> {
  const { kind, mountPoint } = attachment
  await attachment.stop?.()
  if (kind === 'mount' || kind === 'copy') {
    await unmountTree(os.mounts, mountPoint, isOtherStorage)
    if (await isMountPoint(os, mountPoint)) {
      throw new AgentError('INTERNAL', `storage ${mountPoint}: still mounted after unmount`)
    }
    if (kind === 'copy') await os.files.removeTree(mountPoint)
    else await removeMountPoint(os, mountPoint)
  }
  await attachment.onRemove?.()
}

async function removeMountPoint(os: Kernel, mountPoint: string): Promise<void> {
  const status = await os.files.lstat(mountPoint)
  if (status === undefined || status.kind === 'file') return
  if (status.kind !== 'directory') {
    throw new AgentError('INTERNAL', `storage ${mountPoint}: is a ${status.kind}, want a directory or file`)
  }
  for await (const _name of os.files.names(mountPoint)) {
    throw new AgentError('INTERNAL', `${mountPoint}: directory is not empty when clean up storage`)
  }
  try {
    await os.files.removeDirectory(mountPoint)
  } catch (error) {
    // The guest may not write to this folder: the host made the mount point and removes it.
    if (!NOT_WRITABLE.includes(errnoOf(error) ?? '')) throw error
  }
}

const NOT_WRITABLE: readonly string[] = ['EROFS', 'EACCES', 'EPERM']
