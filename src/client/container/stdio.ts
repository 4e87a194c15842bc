import type { Readable, Writable } from 'node:stream'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { untilKeys } from '../terminal/detach-keys.ts'
import type { Agent } from './container-session.ts'

/** Far below the limit of a message, and large enough to make round trips cheap. */
const WRITE_BYTES = 1 << 20

/** Names a process. The `execId` of a first process is the container's id. */
export interface ProcessKey {
  readonly containerId: string
  readonly execId: string
}

/** Copies `source` to the process's stdin, one write in flight. Throws `Detached` at the detach keys. */
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

/** Yields what has arrived since the previous piece: at most `maxBytes` and a chunk. Ends with `source` or `signal`. */
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
  // The previous reader may have paused it.
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

const READ_BYTES = 1 << 20

/** The first write without a reader fails with EPIPE, later writes with ERR_STREAM_DESTROYED. */
const CLOSED: readonly string[] = ['EPIPE', 'ERR_STREAM_DESTROYED']

/** Thrown when the tool's own output has lost its reader. */
export class OutputClosed extends Error {}

/** Copies a process's stream to `target` as fast as `target` takes it. Throws {@link OutputClosed}. */
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

/** Resolves once `target` has taken everything. Throws {@link OutputClosed}. */
export async function writeWhole(target: Writable, data: Uint8Array | string): Promise<void> {
  const written = Promise.withResolvers<void>()
  target.write(data, (error) => {
    if (error === null || error === undefined) written.resolve()
    else if (CLOSED.includes(errnoOf(error) ?? '')) written.reject(new OutputClosed())
    else written.reject(new AgentError('INTERNAL', `cannot write the output: ${error.message}`))
  })
  await written.promise
}
