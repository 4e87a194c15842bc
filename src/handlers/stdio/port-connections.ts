import type { Fd, Streams } from '../../os/streams/streams.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

export type StreamName = 'stdin' | 'stdout' | 'stderr'

/** A process's connections until its streams take them. */
export class PortConnections {
  readonly #streams: Pick<Streams, 'close'>
  readonly #fds: Map<StreamName, Fd>
  readonly #settled: () => Promise<void>
  #stored: StoredDescriptors | undefined
  readonly #ports: ReadonlyMap<StreamName, number>
  /** Whether input and output have the same connection. */
  readonly isShared: boolean

  /** Owns the descriptors. `settled` is called when the process is made or never will be. */
  constructor(
    streams: Pick<Streams, 'close'>,
    fds: ReadonlyMap<StreamName, Fd> = new Map(),
    options: {
      readonly isShared?: boolean
      readonly settled?: () => Promise<void>
      readonly ports?: ReadonlyMap<StreamName, number>
    } = {},
  ) {
    this.#streams = streams
    this.#fds = new Map(fds)
    this.isShared = options.isShared ?? false
    this.#ports = options.ports ?? new Map()
    this.#settled = options.settled ?? (async () => {})
  }

  has(name: StreamName): boolean {
    return this.#fds.has(name)
  }

  keepIn(stored: StoredDescriptors, hasTerminal: boolean): void {
    this.#stored = stored
    for (const [name, fd] of this.#fds) {
      if (hasTerminal && name === 'stderr') continue
      stored.put(name === 'stdin' && this.isShared ? 'stdin-shared' : `${name}-host`, fd)
    }
  }

  /** `use` owns the connection unless it throws. Returns undefined when the stream has none. */
  take<T>(name: StreamName, use: (connection: Fd, port: number) => T): T | undefined {
    const fd = this.#fds.get(name)
    if (fd === undefined) return undefined
    const result = use(fd, this.#ports.get(name) ?? 0)
    this.#fds.delete(name)
    return result
  }

  /** Call it once the process is made or never will be. */
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
