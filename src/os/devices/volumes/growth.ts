/** A file system that is mounted somewhere. */
export interface Volume {
  readonly mountPoint: string
  /** The node of the block device it is on. */
  readonly device: string
}

/** One type of file system that can grow while it is mounted. */
export interface FileSystemGrowth {
  /** All it covers of its device, its own bookkeeping included. */
  size(volume: Volume): Promise<{ readonly blockBytes: bigint; readonly blocks: bigint }>
  /** Makes it cover so many blocks: no fewer than it has. EROFS on a mount that is read-only. */
  grow(volume: Volume, blocks: bigint): Promise<void>
}
