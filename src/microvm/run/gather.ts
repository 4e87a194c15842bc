import type { Readable } from 'node:stream'

/**
 * The bytes of `source` in pieces of up to `maxBytes` (a single chunk of the source may be larger): whatever came
 * while the caller was busy with the last piece. Stops reading ahead at `maxBytes`. Ends when the source ends or
 * `signal` fires.
 */
export async function* gather(
  source: Readable,
  maxBytes: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void, undefined> {
  let chunks: Buffer[] = []
  let bytes = 0
  let ended = false
  let wake = Promise.withResolvers<void>()
  const onData = (chunk: Buffer) => {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes >= maxBytes) source.pause()
    wake.resolve()
  }
  const onEnd = () => {
    ended = true
    wake.resolve()
  }
  source.on('data', onData).once('end', onEnd).once('close', onEnd).once('error', onEnd)
  signal.addEventListener('abort', onEnd, { once: true })
  try {
    while (!signal.aborted) {
      if (bytes > 0) {
        const piece = Buffer.concat(chunks)
        chunks = []
        bytes = 0
        source.resume()
        yield piece
        continue
      }
      if (ended) return
      await wake.promise
      wake = Promise.withResolvers<void>()
    }
  } finally {
    source.off('data', onData).off('end', onEnd).off('close', onEnd).off('error', onEnd)
    signal.removeEventListener('abort', onEnd)
    source.pause()
  }
}
