import { constants, fstatSync } from 'node:fs'
import { errnoOf } from '../../base/errors.ts'
import { checkErrno, fromNodeError, kernelError, unwrap } from '../errors.ts'
import { unlink } from '../files/node-files.ts'
import type { Native } from '../native.ts'
import { AT_FDCWD } from '../open-flags.ts'
import type { Fd, Streams } from './streams.ts'

/** Terminals, and the receiving side of an OCI runtime's `--console-socket`. */
export interface Consoles {
  /** A new pty. `master` does not block. The caller closes both. */
  open(): { readonly master: Fd; readonly terminal: Fd }
  /** Does not become this process's controlling terminal. Throws ENOTTY for any other file. */
  openDevice(path: string): Fd
  /** `master` resolves with the non-blocking pty master that the runtime sends. */
  listen(
    path: string,
    listener?: ConsoleListener,
  ): { master(signal: AbortSignal): Promise<Fd>; close(): Promise<void> }
  /** The terminal that a runtime has sent to a previous agent's socket, or undefined. The caller owns it. */
  receive(socket: Fd): Fd | undefined
}

/** Called for each descriptor as soon as it is open. An exception fails the call. */
export interface ConsoleListener {
  listening(socket: Fd): void
  received(master: Fd): void
}

/** The OCI runtime connects once to a console socket, and sends the master of its new pty (SCM_RIGHTS). */
export function linuxConsoles(native: Native, streams: Streams): Consoles {
  return {
    receive(socket) {
      const connection = native.accept(socket)
      if (connection < 0) return undefined
      const master = native.receiveFd(connection)
      streams.close(connection)
      if (master < 0) return undefined
      checkErrno('unblock', 'a console', native.setNonBlocking(master, true))
      return master
    },
    open() {
      const [master, terminal] = unwrap('open', 'a pty', native.pty())
      return { master, terminal }
    },
    openDevice(path) {
      // A fifo, or a serial line without a carrier, would block the open.
      const flags = constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK
      const fd = checkErrno('open', path, native.openAt2(AT_FDCWD, path, { flags, mode: 0, resolve: 0 }))
      try {
        if (!fstatSync(fd).isCharacterDevice()) throw kernelError('open', path, 'ENOTTY')
        checkErrno('unblock', path, native.setNonBlocking(fd, false))
      } catch (error) {
        streams.close(fd)
        throw error
      }
      return fd
    },
    listen(path, listener) {
      const listening = checkErrno('listen', path, native.unixListen(path, 1))
      try {
        listener?.listening(listening)
      } catch (error) {
        streams.close(listening)
        throw error
      }
      return {
        master: (signal) => receiveMaster({ native, streams, path, listening, listener, signal }),
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
  readonly listener: ConsoleListener | undefined
  readonly signal: AbortSignal
}): Promise<Fd> {
  const { native, streams, path, signal } = console
  await streams.readable(console.listening, signal)
  const connection = checkErrno('accept', path, native.accept(console.listening))
  try {
    await streams.readable(connection, signal)
    const master = checkErrno('receive a descriptor at', path, native.receiveFd(connection))
    try {
      checkErrno('unblock', `the console of ${path}`, native.setNonBlocking(master, true))
      console.listener?.received(master)
    } catch (error) {
      streams.close(master)
      throw error
    }
    return master
  } finally {
    streams.close(connection)
  }
}
