/** Bytes of a file in memory, which nothing loads into this process but `read`. */
export interface StoredBytes {
  readonly length: number
  /** Where the bytes are; undefined when the file is closed. */
  readonly place: { readonly fd: number; readonly offset: number } | undefined
  /** Not to be called when the file is closed. */
  read(): Uint8Array
}

export function bytesOf(bulk: Uint8Array | StoredBytes): Uint8Array {
  return bulk instanceof Uint8Array ? bulk : bulk.read()
}
