import { unlink } from 'node:fs/promises'
import { errnoOf } from '../../base/errors.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from './streams.ts'

/** The receiving side of an OCI runtime's `--console-socket`. */
export interface Consoles {
  /** Listens at `path`. `master` resolves with the non-blocking pty master that the runtime sends. */
  listen(path: string): { master(signal: AbortSignal): Promise<Fd>; close(): Promise<void> }
}

/** Console sockets: the OCI runtime connects once and sends the master of its new pty (SCM_RIGHTS). */
export function linuxConsoles(native: Native, streams: Streams): Consoles {
  return {
    listen(path) {
      const listening = checkErrno('listen', path, native.unixListen(path, 1))
      return {
        master: (signal) => receiveMaster({ native, streams, path, listening, signal }),
        async close() {
          streams.close(listening)
          await unlink(path).catch((error) => {
            if (errnoOf(error) !== 'ENOENT') throw fromNodeError('unlink', path, error)
          })
        },
      }
    },
  }
}

async function receiveMaster(console: {
  readonly native: Native
  readonly streams: Streams
  readonly path: string
  readonly listening: Fd
  readonly signal: AbortSignal
}): Promise<Fd> {
  const { native, streams, path, signal } = console
  await streams.readable(console.listening, signal)
  const connection = checkErrno('accept', path, native.accept(console.listening))
  try {
    await streams.readable(connection, signal)
    const master = checkErrno('receive a descriptor at', path, native.receiveFd(connection))
    checkErrno('unblock', `the console of ${path}`, native.setNonBlocking(master, true))
    return master
  } finally {
    streams.close(connection)
  }
}
