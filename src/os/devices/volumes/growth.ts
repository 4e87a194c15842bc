/** A mounted file system. */
export interface Volume {
  readonly mountPoint: string
  /** The node of the block device it is on. */
  readonly device: string
}

/** One type of file system that can grow while it is mounted. */
export interface FileSystemGrowth {
  /** How much of its device it covers, its own bookkeeping included. */
  size(volume: Volume): Promise<{ readonly blockBytes: bigint; readonly blocks: bigint }>
  /** Grows it to `blocks`, at least as many as it has. EROFS on a read-only mount. */
  grow(volume: Volume, blocks: bigint): Promise<void>
}
