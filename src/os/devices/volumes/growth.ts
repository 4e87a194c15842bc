export interface Volume {
  readonly mountPoint: string
  /** The node of its block device. */
  readonly device: string
}

export interface FileSystemGrowth {
  /** How much of its device the file system covers, with its own bookkeeping. */
  size(volume: Volume): Promise<{ readonly blockBytes: bigint; readonly blocks: bigint }>
  /** `blocks` is at least as many as it has. EROFS on a read-only mount. */
  grow(volume: Volume, blocks: bigint): Promise<void>
}
