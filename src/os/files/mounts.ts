/** An entry of a mount table. */
export interface MountEntry {
  readonly id: number
  readonly parentId: number
  readonly mountPoint: string
  readonly type: string
  readonly source: string
  /** The mount's own options (`rw,nosuid,relatime`), not those of its file system. */
  readonly options: string
  readonly major: number
  readonly minor: number
}

/** The mounts of this process's namespace. */
export interface Mounts {
  /**
   * mount(2). `flags` are names of the MS_ constants without the prefix, lower case: `nosuid`, `bind`, `rec`, … Throws
   * INVALID_ARGUMENT for data of more than 4,095 bytes, but of a new overlay the kernel takes more from Linux 6.7 on.
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
   * umount2(2), never following a symbolic link. EBUSY when it is in use for half a second; ETIMEDOUT when it has not ended
   * after 30 s, because a server or disk is dead: it is not in the table any more then, and the kernel goes on.
   */
  unmount(target: string, options?: { readonly detach?: boolean }): Promise<void>
  /** Mounts a copy of the mount at a path, and of those below it, in another process's namespace. */
  clone(from: MountPlace, to: MountPlace): Promise<void>
  /**
   * Makes an ipc and a uts namespace and mounts each on an existing file, which keeps it alive. An empty `hostname`
   * keeps the name of this process's namespace. After an error, one of the two may be mounted.
   */
  pinNamespaces(request: {
    readonly ipc: string
    readonly uts: string
    readonly hostname: string
  }): Promise<void>
  /** The mount table, in its order. */
  list(): Promise<readonly MountEntry[]>
  /**
   * Whether something is mounted at a path of another process's namespace. ENOENT or EINVAL when the process is gone,
   * EFBIG for a table of more than 64 MiB.
   */
  isMounted(pid: number, path: string): Promise<boolean>
}

/** Whether something is mounted at a path. */
export async function isMountPoint({ mounts }: { readonly mounts: Mounts }, path: string): Promise<boolean> {
  return (await mounts.list()).some(({ mountPoint }) => mountPoint === path)
}

/** A path in the mount namespace of a process, from the root of that namespace. */
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
