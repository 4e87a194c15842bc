import type { Fd, Streams } from '../../os/streams/streams.ts'

export type StreamName = 'stdin' | 'stdout' | 'stderr'

/** The connections made for a process's streams, until each is taken by its stream. */
export class PortConnections {
  readonly #streams: Pick<Streams, 'close'>
  readonly #fds: Map<StreamName, Fd>

  /** Takes over the descriptors. */
  constructor(streams: Pick<Streams, 'close'>, fds: ReadonlyMap<StreamName, Fd> = new Map()) {
    this.#streams = streams
    this.#fds = new Map(fds)
  }

  has(name: StreamName): boolean {
    return this.#fds.has(name)
  }

  /** Passes a connection to `use`, which owns it unless it throws; undefined when the stream has none. */
  take<T>(name: StreamName, use: (connection: Fd) => T): T | undefined {
    const fd = this.#fds.get(name)
    if (fd === undefined) return undefined
    const result = use(fd)
    this.#fds.delete(name)
    return result
  }

  /** Closes the connections that no stream has taken. */
  close(): void {
    for (const fd of this.#fds.values()) this.#streams.close(fd)
    this.#fds.clear()
  }
}
