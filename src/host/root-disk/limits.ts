export interface RootDiskLimits {
  /** Of an image for a disk that has no size yet. */
  readonly imageBytes: number
  readonly redirects: number
  /** Connections for one image, the first one and those that start anew included. */
  readonly tries: number
  /** How long a server may take for `idleBytes`, and for its answer. */
  readonly idleMs: number
  readonly idleBytes: number
  /** The wait before the second try; it doubles up to `longestRetryMs`. */
  readonly firstRetryMs: number
  readonly longestRetryMs: number
  /** What a killed preparation may have to download again. */
  readonly checkpointBytes: number
}

export const ROOT_DISK_LIMITS: RootDiskLimits = {
  imageBytes: 2 ** 40,
  redirects: 5,
  tries: 20,
  idleMs: 30_000,
  idleBytes: 4096,
  firstRetryMs: 250,
  longestRetryMs: 10_000,
  checkpointBytes: 2 ** 26,
}
