import type { Writable } from 'node:stream'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Agent } from './container-session.ts'

/** One ReadStdout or ReadStderr asks for so much at once. */
const READ_BYTES = 1 << 20

/** What a write meets when the reader has gone, and every write after it. */
const CLOSED: readonly string[] = ['EPIPE', 'ERR_STREAM_DESTROYED']

/** Thrown when nobody reads our own output any more. */
export class OutputClosed extends Error {}

/**
 * Copies a container's stream to `target` until it ends. The next read is asked for only when the bytes of the last
 * one were taken. Throws {@link OutputClosed} when `target` has lost its reader.
 */
export async function copyOutput(
  read: Agent['readStdout'],
  containerId: string,
  target: Writable,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const { data } = await read({ containerId, execId: containerId, len: READ_BYTES }, { signal })
    if (data.length === 0) return
    await writeWhole(target, data)
  }
}

/** Writes and waits until it was taken. */
async function writeWhole(target: Writable, data: Uint8Array | string): Promise<void> {
  const written = Promise.withResolvers<void>()
  target.write(data, (error) => {
    if (error === null || error === undefined) written.resolve()
    else if (CLOSED.includes(errnoOf(error) ?? '')) written.reject(new OutputClosed())
    else written.reject(new AgentError('INTERNAL', `cannot write the output: ${error.message}`))
  })
  await written.promise
}
