import type { Readable, Writable } from 'node:stream'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { untilKeys } from '../terminal/detach-keys.ts'
import type { Agent } from './container-session.ts'

/** Far below the limit of a message, and large enough to make the round trip cheap. */
const WRITE_BYTES = 1 << 20

/** Names a process: `execId` of a container's first process is the container's id. */
export interface ProcessKey {
  readonly containerId: string
  readonly execId: string
}

/** Copies `source` to the process's stdin until it ends, one write in flight. Throws `Detached` at the detach keys. */
export async function copyInput(
  agent: Agent,
  process: ProcessKey,
  source: Readable,
  signal: AbortSignal,
  detachKeys?: Buffer,
): Promise<void> {
  const pieces = gather(source, WRITE_BYTES, signal)
  const hasKeys = detachKeys !== undefined && detachKeys.length > 0
  for await (const piece of hasKeys ? untilKeys(pieces, detachKeys) : pieces) {
    await agent.writeStdin({ ...process, data: piece }, { signal })
  }
  signal.throwIfAborted()
}

/**
 * The bytes of `source` in pieces: each is what arrived while the caller handled the piece before. Stops reading ahead
 * at `maxBytes`, so a piece is longer only by the last chunk of the source. Ends when the source ends or `signal` fires.
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
  // It may have been paused by its last reader.
  source.resume()
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

/** How much one ReadStdout or ReadStderr asks for. */
const READ_BYTES = 1 << 20

/** The error of a write whose reader has gone, and of every later write. */
const CLOSED: readonly string[] = ['EPIPE', 'ERR_STREAM_DESTROYED']

/** Thrown when the tool's own output has lost its reader. */
export class OutputClosed extends Error {}

/**
 * Copies a process's stream to `target` until it ends. Sends the next read only once `target` has taken the bytes of
 * the last one. Throws {@link OutputClosed} when `target` has lost its reader.
 */
export async function copyOutput(
  read: Agent['readStdout'],
  process: ProcessKey,
  target: Writable,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const { data } = await read({ ...process, len: READ_BYTES }, { signal })
    if (data.length === 0) return
    await writeWhole(target, data)
  }
}

/** Writes and waits until `target` has taken everything. */
export async function writeWhole(target: Writable, data: Uint8Array | string): Promise<void> {
  const written = Promise.withResolvers<void>()
  target.write(data, (error) => {
    if (error === null || error === undefined) written.resolve()
    else if (CLOSED.includes(errnoOf(error) ?? '')) written.reject(new OutputClosed())
    else written.reject(new AgentError('INTERNAL', `cannot write the output: ${error.message}`))
  })
  await written.promise
}
