import { kernelError } from '../../../../src/os/errors.ts'
import type { ConsoleListener, Consoles } from '../../../../src/os/streams/consoles.ts'
import type { Fd } from '../../../../src/os/streams/streams.ts'
import type { FakeStreams } from './fake-streams.ts'

interface ConsoleSocket {
  readonly master: PromiseWithResolvers<Fd>
  readonly listener: ConsoleListener | undefined
  /** True after the runtime has connected; the call can no longer be cancelled. */
  isConnected: boolean
}

/** Console sockets; the test plays the runtime with {@link connect}. */
export class FakeConsoles implements Consoles {
  readonly #streams: FakeStreams
  readonly #listening = new Map<string, ConsoleSocket>()

  constructor(streams: FakeStreams) {
    this.#streams = streams
  }

  /** Terminals that were sent while no agent received them. */
  readonly waiting: Fd[] = []

  receive(): Fd | undefined {
    return this.waiting.shift()
  }

  get paths(): readonly string[] {
    return [...this.#listening.keys()]
  }

  open(): { master: Fd; terminal: Fd } {
    const { master, slave } = this.#streams.pty()
    return { master, terminal: slave }
  }

  openDevice(path: string): Fd {
    throw kernelError('open', path, 'ENOENT')
  }

  listen(
    path: string,
    listener?: ConsoleListener,
  ): { master(signal: AbortSignal): Promise<Fd>; close(): Promise<void> } {
    if (this.#listening.has(path)) throw kernelError('listen', path, 'EADDRINUSE')
    const fd = this.#streams.memoryFile('console socket')
    try {
      listener?.listening(fd)
    } finally {
      this.#streams.close(fd)
    }
    const socket = { master: Promise.withResolvers<Fd>(), listener, isConnected: false }
    this.#listening.set(path, socket)
    return {
      master: async (signal) => {
        const onAbort = () => {
          if (!socket.isConnected) socket.master.reject(signal.reason)
        }
        if (signal.aborted) onAbort()
        signal.addEventListener('abort', onAbort, { once: true })
        try {
          return await socket.master.promise
        } finally {
          signal.removeEventListener('abort', onAbort)
        }
      },
      close: async () => {
        this.#listening.delete(path)
        socket.master.promise.catch(() => {})
        socket.master.reject(kernelError('receive a descriptor at', path, 'EBADF'))
      },
    }
  }

  /** Makes a pty, sends its master to the listener at `path`, and returns the container's side. */
  connect(path: string): Fd {
    const socket = this.#listening.get(path)
    if (socket === undefined) throw kernelError('connect', path, 'ENOENT')
    const { master, slave } = this.#streams.pty()
    socket.isConnected = true
    try {
      socket.listener?.received(master)
      socket.master.resolve(master)
    } catch (error) {
      this.#streams.close(master)
      socket.master.reject(error)
    }
    return slave
  }
}
