import { AgentError } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { hasServer, type MountEntry } from '../../os/files/mounts.ts'

/** A writable file system of a disk. */
export interface DiskFileSystem {
  /** Its mounts, the first one first. */
  readonly mounts: readonly [MountEntry, ...MountEntry[]]
  /** Whether the way to it leads through a file system whose server may be dead. */
  readonly isBelowServer: boolean
}

/** How errors name it: `/data (/dev/vdb)`. */
export function nameOf({ mounts: [{ mountPoint, source }] }: DiskFileSystem): string {
  return `${mountPoint} (${source})`
}

/** Innermost first: what was mounted later may lie on what was mounted before, such as a file of it by a loop device. */
export function diskFileSystems(mounts: readonly MountEntry[]): readonly DiskFileSystem[] {
  const found = new Map<string, [MountEntry, ...MountEntry[]]>()
  for (const mount of mounts) {
    const known = found.get(deviceOf(mount))
    if (known !== undefined) known.push(mount)
    else if (isOnDisk(mount) && !mount.isReadOnly) found.set(deviceOf(mount), [mount])
  }
  return [...found.values()]
    .toReversed()
    .map((each) => ({ mounts: each, isBelowServer: isBelowServer(mounts, each[0]) }))
}

/** Throws FAILED_PRECONDITION for a file system that holds one of `paths`, which the agent writes while others are frozen. */
export function refuseOwn(
  mounts: readonly MountEntry[],
  fileSystems: readonly DiskFileSystem[],
  paths: readonly string[],
): void {
  for (const path of paths) {
    const holder = holderOf(mounts, path)
    const own = fileSystems.find(({ mounts: [first] }) => holder && deviceOf(first) === deviceOf(holder))
    if (own === undefined) continue
    throw new AgentError('FAILED_PRECONDITION', `file system ${nameOf(own)}: holds ${path} of the agent`)
  }
}

/** The topmost mount that a path leads to. */
function holderOf(mounts: readonly MountEntry[], path: string): MountEntry | undefined {
  let holder: MountEntry | undefined
  for (const mount of mounts) {
    if (!isWithin(path, mount.mountPoint)) continue
    if (holder === undefined || mount.mountPoint.length >= holder.mountPoint.length) holder = mount
  }
  return holder
}

function deviceOf({ major, minor }: MountEntry): string {
  return `${major}:${minor}`
}

/** btrfs has a number that is no block device's. */
function isOnDisk(mount: MountEntry): boolean {
  return !hasServer(mount) && (mount.major !== 0 || mount.source.startsWith('/dev/'))
}

function isBelowServer(mounts: readonly MountEntry[], mount: MountEntry): boolean {
  const parent = mounts.find(({ id }) => id === mount.parentId)
  if (parent === undefined || parent === mount) return false
  return hasServer(parent) || isBelowServer(mounts, parent)
}
