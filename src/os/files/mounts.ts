export interface MountEntry {
  readonly id: number
  readonly parentId: number
  readonly mountPoint: string
  readonly type: string
  readonly source: string
  /** The mount's own options (`rw,nosuid,relatime`), not those of its file system. */
  readonly options: string
  /** Of the file system: no mount of it takes writes. */
  readonly isReadOnly: boolean
  readonly major: number
  readonly minor: number
}

/** Whether a server, which may be dead, answers for the file system. */
export function hasServer({ type }: Pick<MountEntry, 'type'>): boolean {
  return /^(virtiofs|9p|fuse|nfs)/.test(type)
}

export interface Mounts {
  /**
   * mount(2). `flags` are MS_ constants in lower case without the prefix: `nosuid`, `bind`, `rec`, … Throws
   * INVALID_ARGUMENT for data of more than 4,095 bytes, except for a new overlay from Linux 6.7 on.
   */
  mount(request: {
    readonly source: string
    readonly target: string
    readonly type: string
    readonly flags: readonly MountFlag[]
    readonly data: string
    /** ELOOP for a symbolic link on the way to the target. */
    readonly refuseLinks?: boolean
  }): Promise<void>
  /**
   * umount2(2), never following a symbolic link. EBUSY after half a second of use; ETIMEDOUT after 30 s with a dead
   * server or disk: the mount has then left the table, and the kernel continues.
   */
  unmount(target: string, options?: { readonly detach?: boolean }): Promise<void>
  /** Copies a mount, and those below it, into another process's namespace. */
  clone(from: MountPlace, to: MountPlace): Promise<void>
  /** Mounts new namespaces on existing files. An empty `hostname` keeps the name. After an error one may be mounted. */
  pinNamespaces(request: {
    readonly ipc: string
    readonly uts: string
    readonly hostname: string
  }): Promise<void>
  /** The host name of the uts namespace at a path, which has `hostname` afterwards if that is given and not empty. */
  hostnameIn(namespace: string, hostname?: string): Promise<string>
  list(): Promise<readonly MountEntry[]>
  /** Looks a folder up in another process. ETIMEDOUT after 2 s: a server on the way to it is dead. */
  reach(folder: string): Promise<void>
  /** In another process's namespace. ENOENT or EINVAL when the process is gone, EFBIG for a table above 64 MiB. */
  isMounted(pid: number, path: string): Promise<boolean>
}

export async function isMountPoint({ mounts }: { readonly mounts: Mounts }, path: string): Promise<boolean> {
  return (await mounts.list()).some(({ mountPoint }) => mountPoint === path)
}

/** A path from the root of a process's mount namespace. */
export interface MountPlace {
  readonly pid: number
  readonly path: string
}

/** MS_ constants without the prefix, in lower case (linux/mount.h); the same on every architecture. */
export const MOUNT_FLAG_BITS = {
  ro: 1,
  nosuid: 1 << 1,
  nodev: 1 << 2,
  noexec: 1 << 3,
  synchronous: 1 << 4,
  remount: 1 << 5,
  mandlock: 1 << 6,
  dirsync: 1 << 7,
  noatime: 1 << 10,
  nodiratime: 1 << 11,
  bind: 1 << 12,
  move: 1 << 13,
  rec: 1 << 14,
  silent: 1 << 15,
  unbindable: 1 << 17,
  private: 1 << 18,
  slave: 1 << 19,
  shared: 1 << 20,
  relatime: 1 << 21,
  i_version: 1 << 23,
  strictatime: 1 << 24,
  lazytime: 1 << 25,
} as const

export type MountFlag = keyof typeof MOUNT_FLAG_BITS
