import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

export type StreamName = 'stdin' | 'stdout' | 'stderr'

/** The connections made for a process's streams, until each is taken by its stream. */
export class PortConnections {
  readonly #streams: Pick<Streams, 'close'>
  readonly #fds: Map<StreamName, Fd>
  readonly #settled: () => Promise<void>
  #stored: StoredDescriptors | undefined
  /** Whether input and output have the same connection. */
  readonly isShared: boolean

  /** Takes over the descriptors. `settled` is called when the process is made, or never will be. */
  constructor(
    streams: Pick<Streams, 'close'>,
    fds: ReadonlyMap<StreamName, Fd> = new Map(),
    options: { readonly isShared?: boolean; readonly settled?: () => Promise<void> } = {},
  ) {
    this.#streams = streams
    this.#fds = new Map(fds)
    this.isShared = options.isShared ?? false
    this.#settled = options.settled ?? (async () => {})
  }

  has(name: StreamName): boolean {
    return this.#fds.has(name)
  }

  /** Stores the connections. A terminal has none of stderr. */
  keepIn(stored: StoredDescriptors, hasTerminal: boolean): void {
    this.#stored = stored
    for (const [name, fd] of this.#fds) {
      if (hasTerminal && name === 'stderr') continue
      stored.put(name === 'stdin' && this.isShared ? 'stdin-shared' : `${name}-host`, fd)
    }
  }

  /** Passes a connection to `use`, which owns it unless it throws; undefined when the stream has none. */
  take<T>(name: StreamName, use: (connection: Fd) => T): T | undefined {
    const fd = this.#fds.get(name)
    if (fd === undefined) return undefined
    const result = use(fd)
    this.#fds.delete(name)
    return result
  }

  /** To be called when the process is made, or never will be: the host's connections are for no other from now on. */
  settled(): Promise<void> {
    return this.#settled()
  }

  /** Closes the connections that no stream has taken. Resolves when the host sees it. */
  async close(): Promise<void> {
    const names = [...this.#fds.keys()]
    for (const fd of this.#fds.values()) this.#streams.close(fd)
    this.#fds.clear()
    await this.#stored?.remove(
      ...names.map((name) =>
        name === 'stdin' && this.isShared ? 'stdin-shared' : (`${name}-host` as const),
      ),
    )
  }
}
