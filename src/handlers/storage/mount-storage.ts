import { dirname } from 'node:path/posix'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { type UndoList, undoOnFailure } from '../../base/undo.ts'
import type { Storage } from '../../gen/agent.ts'
import type { Files } from '../../os/files/files.ts'
import type { MountFlag, Mounts } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'
import { type MountOptions, parseMountOptions } from './mount-options.ts'
import { checkMountPoint } from './mount-point.ts'
import { applyFsGroup } from './ownership.ts'

export interface MountContext {
  readonly os: Pick<Os, 'files' | 'mounts'>
  readonly log: Logger
  /** Mount points must lie below one of these. */
  readonly allowedRoots: readonly string[]
}

export interface MountRequest extends Pick<Storage, 'fstype' | 'options' | 'mountPoint' | 'fsGroup'> {
  /** A function waits for a device node; the mount point is created before, so that the mount follows at once. */
  readonly source: string | (() => Promise<string>)
}

/**
 * Creates the mount point, mounts, calls `finish` for the driver's last step, and applies the group. Throws
 * INVALID_ARGUMENT for an empty field, INTERNAL with the kernel's error, or the abort reason, after undoing all steps.
 */
export async function mountStorage(
  request: MountRequest,
  dependencies: MountContext,
  signal: AbortSignal,
  finish: () => Promise<void> = async () => {},
): Promise<void> {
  for (const name of ['source', 'mountPoint', 'fstype'] as const) {
    if (request[name] === '')
      throw new AgentError('INVALID_ARGUMENT', `storage ${request.mountPoint}: ${name} is empty`)
  }
  const options = parseMountOptions(request.options)
  const { os, log } = dependencies
  await undoOnFailure(log, async (onFailure) => {
    await createMountPoint(os.files, request, onFailure)
    const source = typeof request.source === 'string' ? request.source : await request.source()
    signal.throwIfAborted()
    await mount({ ...request, source }, options, dependencies, onFailure)
    await finish()
    if (request.fsGroup !== undefined) {
      const readOnly = options.flags.includes('ro')
      await applyFsGroup({ root: request.mountPoint, group: request.fsGroup, readOnly }, dependencies, signal)
    }
    signal.throwIfAborted()
  })
}

async function createMountPoint(files: Files, request: MountRequest, onFailure: UndoList): Promise<void> {
  const { mountPoint, fstype, source } = request
  if ((await files.lstat(mountPoint)) !== undefined) return
  await files.makeDirectories(dirname(mountPoint), 0o755)
  if (fstype === 'bind' && !(await isDirectory(files, source))) {
    await files.write(mountPoint, '')
    onFailure.add('remove mount point', () => files.removeFile(mountPoint))
  } else {
    await files.makeDirectory(mountPoint, 0o755)
    onFailure.add('remove mount point', () => files.removeDirectory(mountPoint))
  }
}

/** A source that is waited for is a device node, never a directory. */
async function isDirectory(files: Files, source: MountRequest['source']): Promise<boolean> {
  return typeof source === 'string' && (await files.stat(source))?.kind === 'directory'
}

/** A new bind mount ignores every flag but `rec`, and a change of propagation needs its own call (man 2 mount). */
async function mount(
  { source, mountPoint: target, fstype: type }: MountRequest & { readonly source: string },
  { flags, data }: MountOptions,
  dependencies: MountContext,
  onFailure: UndoList,
): Promise<void> {
  const propagation = flags.filter((flag) => PROPAGATION.has(flag))
  const ordinary = flags.filter((flag) => !PROPAGATION.has(flag) && flag !== 'rec')
  const recursive = flags.filter((flag) => flag === 'rec')
  const isBind = ordinary.includes('bind')
  const isNew = !ordinary.includes('remount')
  const first = isBind ? [...ordinary, ...recursive] : ordinary
  await mountOnce({ source, target, type, flags: first, data }, dependencies)
  if (isNew) onFailure.add('unmount', () => unmountTree(dependencies.os.mounts, target))
  if (isBind && isNew && ordinary.length > 1) {
    await mountOnce({ source, target, type, flags: ['remount', ...ordinary], data: '' }, dependencies)
  }
  for (const change of propagation) {
    await mountOnce(
      { source: 'none', target, type: '', flags: [change, ...recursive], data: '' },
      dependencies,
    )
  }
}

/**
 * Has the kernel refuse a symbolic link created after the check; where it cannot, checks again and mounts without. Throws
 * UNIMPLEMENTED for an unknown file system.
 */
async function mountOnce(
  request: Parameters<Mounts['mount']>[0],
  { os, allowedRoots }: MountContext,
): Promise<void> {
  try {
    await os.mounts.mount({ ...request, refuseLinks: true })
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'ENODEV') {
      const text = `storage ${request.target}: the guest kernel has no ${request.type}`
      throw new AgentError('UNIMPLEMENTED', text, { cause: error, errno })
    }
    // ENOSYS: the kernel is older than 5.6.
    if (errno !== 'ELOOP' && errno !== 'ENOSYS') throw error
    await checkMountPoint(os.files, request.target, allowedRoots)
    // Symbolic links above the roots belong to the guest image and are fine.
    await os.mounts.mount(request)
  }
}

const PROPAGATION: ReadonlySet<MountFlag> = new Set<MountFlag>(['private', 'shared', 'slave', 'unbindable'])

/**
 * Unmounts every mount below the mount point, such as those that a recursive bind brings along, then the mount point.
 * Mounts for which `isOtherStorage` returns true stay, so a mount that contains one fails with EBUSY.
 */
export async function unmountTree(
  mounts: Mounts,
  mountPoint: string,
  isOtherStorage: (mountPoint: string) => boolean = () => false,
): Promise<void> {
  const all = await mounts.list()
  if (!all.some((mount) => mount.mountPoint === mountPoint)) return
  const below = all.filter((mount) => mount.mountPoint.startsWith(`${mountPoint}/`))
  // A later mount may be inside or on top of an earlier one.
  for (const mount of below.toReversed()) {
    if (!isOtherStorage(mount.mountPoint)) await mounts.unmount(mount.mountPoint)
  }
  await mounts.unmount(mountPoint)
}
