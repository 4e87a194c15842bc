import { watch } from 'node:fs'
import { basename, dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { abortable } from '../../../base/abort.ts'
import { errnoOf } from '../../../base/errors.ts'
import { dial } from '../../../client/connection/dial.ts'
import { QmpClient, type QmpOptions } from './client.ts'

/** Between two attempts on a socket that exists and does not listen yet. */
const RETRY_MS = 1

/** Waits until QEMU listens on the socket `path`, and for its greeting. Rejects with the reason of `signal`. */
export async function connectQmp(
  path: string,
  signal: AbortSignal,
  options: QmpOptions = {},
): Promise<QmpClient> {
  const appeared = Promise.withResolvers<void>()
  const watcher = watch(dirname(path), (_, name) => {
    if (name === basename(path)) appeared.resolve()
  })
  try {
    for (;;) {
      try {
        const socket = await dial({ kind: 'unix', path }, signal)
        return await QmpClient.open(socket, signal, options)
      } catch (error) {
        if (errnoOf(error) === 'ENOENT') await abortable(appeared.promise, signal)
        else if (errnoOf(error) === 'ECONNREFUSED') await abortable(delay(RETRY_MS), signal)
        else throw error
      }
    }
  } finally {
    watcher.close()
  }
}
