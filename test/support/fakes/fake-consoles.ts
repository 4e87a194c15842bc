import { abortable } from '../../../src/base/abort.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { Consoles } from '../../../src/os/streams/consoles.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import type { FakeStreams } from './fake-streams.ts'

/** Console sockets; the test plays the runtime with {@link connect}. */
export class FakeConsoles implements Consoles {
  readonly #streams: FakeStreams
  readonly #listening = new Map<string, PromiseWithResolvers<Fd>>()

  constructor(streams: FakeStreams) {
    this.#streams = streams
  }

  /** The paths with a listener. */
  get paths(): readonly string[] {
    return [...this.#listening.keys()]
  }

  listen(path: string): { master(signal: AbortSignal): Promise<Fd>; close(): Promise<void> } {
    if (this.#listening.has(path)) throw kernelError('listen', path, 'EADDRINUSE')
    const master = Promise.withResolvers<Fd>()
    this.#listening.set(path, master)
    return {
      master: (signal) => abortable(master.promise, signal),
      close: async () => {
        this.#listening.delete(path)
      },
    }
  }

  /** Makes a pty, sends its master to the listener at `path`, and returns the container's side. */
  connect(path: string): Fd {
    const listening = this.#listening.get(path)
    if (listening === undefined) throw kernelError('connect', path, 'ENOENT')
    const { master, slave } = this.#streams.pty()
    listening.resolve(master)
    return slave
  }
}
