import { AgentError, errnoOf } from '../../base/errors.ts'
import { isMountPoint } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'
import { unmountTree } from './mount-storage.ts'

/** A storage that a driver has attached, with what is needed to detach it. */
export interface Attachment {
  readonly mountPoint: string
  /**
   * `mount`: the driver mounted something at the mount point. `copy`: the driver created everything at the mount point,
   * and may have mounted something over it. `directory`: a plain directory. `existing`: a mount that was there before.
   * Detaching leaves the last two in place.
   */
  readonly kind: 'mount' | 'directory' | 'copy' | 'existing'
  /** Whether it stays attached without references until the sandbox ends, so that a restarted container finds its data. */
  readonly keep: boolean
  /** The device node that a disk turned out to have; undefined for what is no disk. */
  readonly device?: string
  /** Returns why the storage can no longer be used, such as a removed disk; undefined while it works. */
  readonly fault?: () => Promise<string | undefined>
  /** Stops the driver's background work on it; runs before the unmount. Never throws, and may be called twice. */
  readonly stop?: () => Promise<void>
  /** Undoes the driver's other steps; runs after the mount or the copy is removed. Never throws. */
  readonly onRemove?: () => Promise<void>
  /** What the driver needs to make `fault`, `stop` and `onRemove` anew, in an agent after this one. */
  readonly undo?: Readonly<Record<string, string>>
}

/** The part of an attachment that outlives the agent. */
export type AttachmentData = Pick<Attachment, 'mountPoint' | 'kind' | 'keep' | 'device'> &
  Required<Pick<Attachment, 'undo'>>

/** The part that does not. */
export type AttachmentWork = Pick<Attachment, 'fault' | 'stop' | 'onRemove'>

type Kernel = Pick<Os, 'files' | 'mounts'>

/** Whether the mount, copy or directory still exists. */
export async function isPresent(os: Kernel, { kind, mountPoint }: Attachment): Promise<boolean> {
  if (kind === 'mount' || kind === 'existing') return isMountPoint(os, mountPoint)
  const fileKind = (await os.files.lstat(mountPoint))?.kind
  return kind === 'copy' ? fileKind !== undefined : fileKind === 'directory'
}

/**
 * Detaches a storage: stops the driver's background work, unmounts the storage with every mount below it except those
 * for which `isOtherStorage` returns true, removes the mount point, then calls `onRemove`. A mount point that is a
 * directory must be empty; one that is a file stays, and so does one in a folder that the guest may not write to.
 * Anything that is already gone is skipped. Throws INTERNAL when the storage stays mounted or its directory is not
 * empty.
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
    // In a folder that the guest may not write to, the host made the mount point and removes it.
    if (!NOT_WRITABLE.includes(errnoOf(error) ?? '')) throw error
  }
}

const NOT_WRITABLE: readonly string[] = ['EROFS', 'EACCES', 'EPERM']
