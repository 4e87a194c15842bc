import type { Transform } from 'node:stream'
import { createGunzip, createZstdDecompress } from 'node:zlib'
import type { Compression } from './image-format.ts'

export type Chunks = AsyncGenerator<Buffer, void, undefined>

const OUTPUT = { chunkSize: 1 << 20 }

/**
 * Decompresses all members or frames. Node's stream of zstd ends in silence at a frame that another one follows in the same
 * chunk. What a stream leaves goes to a new one here.
 */
export async function* decompressed(compression: Compression, chunks: Chunks): Chunks {
  let rest: Buffer = Buffer.alloc(0)
  do {
    const decompressor = compression === 'gzip' ? createGunzip(OUTPUT) : createZstdDecompress(OUTPUT)
    const fed = feed(decompressor, rest, chunks)
    fed.catch(() => {})
    try {
      yield* decompressor
    } finally {
      decompressor.destroy()
    }
    rest = await fed
  } while (rest.length > 0)
}

/** Returns the bytes that the decompressor has left, none at the end of the chunks. */
async function feed(
  decompressor: Transform & { readonly bytesWritten: number },
  first: Buffer,
  chunks: Chunks,
): Promise<Buffer> {
  try {
    let [chunk, fed] = [first, 0]
    for (;;) {
      await written(decompressor, chunk)
      fed += chunk.length
      const left = fed - decompressor.bytesWritten
      if (left > 0) return chunk.subarray(chunk.length - left)
      const { done, value } = await chunks.next()
      if (done === true) break
      chunk = value
    }
    decompressor.end()
    return Buffer.alloc(0)
  } catch (error) {
    decompressor.destroy(error instanceof Error ? error : new Error(String(error)))
    throw error
  }
}

function written(stream: Transform, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(chunk, (error) => (error ? reject(error) : resolve()))
  })
}
