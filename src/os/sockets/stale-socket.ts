import { lstatSync } from 'node:fs'
import { errnoOf } from '../../base/errors.ts'
import { fromNodeError } from '../errors.ts'
import { unlink } from '../files/node-files.ts'

/** Removes a socket file without a listener, left by an ended process. Leaves anything else. */
export async function removeStaleSocket(path: string): Promise<void> {
  try {
    // Not on a thread: the first trip to one makes all threads, which takes a millisecond.
    const status = lstatSync(path, { throwIfNoEntry: false })
    if (status?.isSocket() && !(await isAnswered(path))) await unlink(path)
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw fromNodeError('listen', path, error)
  }
}

async function isAnswered(path: string): Promise<boolean> {
  // Loaded on demand: most starts find no such file.
  const { connect } = await import('node:net')
  const answered = Promise.withResolvers<boolean>()
  const socket = connect(path)
  socket.on('connect', () => answered.resolve(true))
  socket.on('error', (error) => answered.resolve(errnoOf(error) !== 'ECONNREFUSED'))
  return await answered.promise.finally(() => socket.destroy())
}
