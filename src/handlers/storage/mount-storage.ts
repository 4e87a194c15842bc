import { dirname } from 'node:path/posix'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { UndoList } from '../../base/undo.ts'
import type { Storage } from '../../gen/agent.ts'
import type { Files } from '../../os/files/files.ts'
import type { MountFlag, Mounts } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'
import { type MountOptions, parseMountOptions } from './mount-options.ts'
import { checkMountPoint } from './mount-point.ts'
import { applyFsGroup } from './ownership.ts'

/** What mounting takes. */
export interface MountDependencies {
  readonly os: Pick<Os, 'files' | 'mounts'>
  readonly log: Logger
  /** Mount points must lie below one of these. */
  readonly allowedRoots: readonly string[]
}

/** What is mounted, and where. */
export interface MountRequest extends Pick<Storage, 'fstype' | 'options' | 'mountPoint' | 'fsGroup'> {
  /**
   * A call finds a device node that may be still to come; the mount point is made before, so that nothing follows but the
   * mount.
   */
  readonly source: string | (() => Promise<string>)
}

/**
 * The mount step of all drivers that mount (spec E.2): creates the mount point, mounts, calls `finish` for what the
 * driver still has to do to it, and applies the group. Throws INVALID_ARGUMENT when the request lacks something,
 * INTERNAL with the kernel's word, or what `signal` is aborted with; then nothing is left mounted or created.
 */
export async function mountStorage(
  request: MountRequest,
  dependencies: MountDependencies,
  signal: AbortSignal,
  finish: () => Promise<void> = async () => {},
): Promise<void> {
  for (const name of ['source', 'mountPoint', 'fstype'] as const) {
    if (request[name] === '')
      throw new AgentError('INVALID_ARGUMENT', `storage ${request.mountPoint}: no ${name}`)
  }
  const options = parseMountOptions(request.options)
  const { os, log } = dependencies
  const undo = new UndoList(log)
  try {
    await createMountPoint(os.files, request, undo)
    const source = typeof request.source === 'string' ? request.source : await request.source()
    signal.throwIfAborted()
    await mount({ ...request, source }, options, dependencies, undo)
    await finish()
    if (request.fsGroup !== undefined) {
      const readOnly = options.flags.includes('ro')
      await applyFsGroup({ root: request.mountPoint, group: request.fsGroup, readOnly }, dependencies, signal)
    }
    signal.throwIfAborted()
    undo.keep()
  } catch (error) {
    await undo.run()
    throw error
  }
}

async function createMountPoint(files: Files, request: MountRequest, undo: UndoList): Promise<void> {
  const { mountPoint, fstype, source } = request
  if ((await files.lstat(mountPoint)) !== undefined) return
  await files.makeDirectories(dirname(mountPoint), 0o755)
  if (fstype === 'bind' && !(await isDirectory(files, source))) {
    await files.write(mountPoint, '')
    undo.add('remove mount point', () => files.removeFile(mountPoint))
  } else {
    await files.makeDirectory(mountPoint, 0o755)
    undo.add('remove mount point', () => files.removeDirectory(mountPoint))
  }
}

/** A source that is still to be found is a node. */
async function isDirectory(files: Files, source: MountRequest['source']): Promise<boolean> {
  return typeof source === 'string' && (await files.stat(source))?.kind === 'directory'
}

/**
 * One mount(2), and more where the kernel would drop flags without a word: a new bind mount ignores all but `rec`, and
 * propagation is changed by a call of its own (man 2 mount).
 */
async function mount(
  { source, mountPoint: target, fstype: type }: MountRequest & { readonly source: string },
  { flags, data }: MountOptions,
  dependencies: MountDependencies,
  undo: UndoList,
): Promise<void> {
  const propagation = flags.filter((flag) => PROPAGATION.has(flag))
  const ordinary = flags.filter((flag) => !PROPAGATION.has(flag) && flag !== 'rec')
  const recursive = flags.filter((flag) => flag === 'rec')
  const isBind = ordinary.includes('bind')
  const isNew = !ordinary.includes('remount')
  const first = isBind ? [...ordinary, ...recursive] : ordinary
  await mountOnce({ source, target, type, flags: first, data }, dependencies)
  if (isNew) undo.add('unmount', () => unmountTree(dependencies.os.mounts, target))
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

/** One mount(2). A link that was made on the way since the mount point was checked is refused by the kernel itself. */
async function mountOnce(
  request: Parameters<Mounts['mount']>[0],
  { os, allowedRoots }: MountDependencies,
): Promise<void> {
  try {
    await os.mounts.mount({ ...request, refuseLinks: true })
  } catch (error) {
    // ENOSYS: a kernel before 5.6.
    if (errnoOf(error) !== 'ELOOP' && errnoOf(error) !== 'ENOSYS') throw error
    await checkMountPoint(os.files, request.target, allowedRoots)
    // What lies above the roots is the image's own, links and all.
    await os.mounts.mount(request)
  }
}

const PROPAGATION: ReadonlySet<MountFlag> = new Set<MountFlag>(['private', 'shared', 'slave', 'unbindable'])

/**
 * Unmounts what is mounted at a mount point, and before it what is mounted below: a recursive bind brings the mounts
 * below its source along, and some file systems mount what is mounted in them on the host. Nothing happens where nothing
 * is mounted. What `isOthers` stays, and the mounts it is in with it (EBUSY).
 */
export async function unmountTree(
  mounts: Mounts,
  mountPoint: string,
  isOthers: (mountPoint: string) => boolean = () => false,
): Promise<void> {
  const all = await mounts.list()
  if (!all.some((mount) => mount.mountPoint === mountPoint)) return
  const below = all.filter((mount) => mount.mountPoint.startsWith(`${mountPoint}/`))
  // What was mounted later may be in or upon what was before.
  for (const mount of below.toReversed()) {
    if (!isOthers(mount.mountPoint)) await mounts.unmount(mount.mountPoint)
  }
  await mounts.unmount(mountPoint)
}
