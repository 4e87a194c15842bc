import type { Fd } from '../../os/streams/streams.ts'
import type { DescriptorStore } from '../../os/supervisor/supervisor.ts'

/**
 * A descriptor of a process, by what it is for. `X-data` has the bytes of stream X that are on their way by calls,
 * `X-pipe` those between a pty or socket and the other side, `X-host` is its connection with the host.
 */
export type DescriptorName =
  | StreamDescriptor
  /** In place of `stdin-host`: the terminal's output has the same connection. */
  | 'stdin-shared'
  /** Input by a port is to end with what has arrived. */
  | 'stdin-end'
  /** The terminal; `stdin` is a duplicate of it. */
  | 'master'
  /** The console socket, until the terminal is received. */
  | 'console'

type StreamDescriptor = `${'stdin' | 'stdout' | 'stderr'}${'' | '-data' | '-pipe' | '-host'}`

/**
 * The descriptors of one process that outlive the agent, in vminit's store, behind the process's key. Which names are
 * there tells the next agent what its streams are: a stream whose own name is missing is closed.
 */
export class StoredDescriptors {
  readonly #store: DescriptorStore
  readonly #key: string
  /** With vminit's answers. */
  readonly #stored = new Map<DescriptorName, Promise<void>>()

  constructor(store: DescriptorStore, key: string) {
    this.#store = store
    this.#key = key
  }

  /** Stores a descriptor, which stays the caller's. It survives the agent from now on, unless {@link accepted} throws. */
  put(name: DescriptorName, fd: Fd): void {
    this.#stored.set(name, this.#store.store(`${this.#key}-${name}`, fd))
  }

  /** Throws RESOURCE_EXHAUSTED when vminit has refused one of these. The caller then removes what it has put. */
  async accepted(): Promise<void> {
    await Promise.all(this.#stored.values())
  }

  /** A descriptor of the previous agent; the caller owns it. */
  take(name: DescriptorName): Fd | undefined {
    const fd = this.#store.take(`${this.#key}-${name}`)
    if (fd !== undefined) this.#stored.set(name, Promise.resolve())
    return fd
  }

  /** Lets {@link take} return a descriptor that is stored, or is now. */
  handOver(name: DescriptorName, fd: Fd, isStored: boolean): void {
    if (!isStored) this.put(name, fd)
    this.#store.handOver(`${this.#key}-${name}`, fd)
  }

  /** Whether {@link take} would return a descriptor. */
  has(name: DescriptorName): boolean {
    return this.#store.names().includes(`${this.#key}-${name}`)
  }

  /** Removes the descriptors that are stored. Resolves when vminit has closed them; never rejects. */
  async remove(...names: readonly DescriptorName[]): Promise<void> {
    const stored = names.filter((name) => this.#stored.delete(name))
    // Without vminit, or the descriptor, nothing keeps it open.
    await Promise.allSettled(stored.map((name) => this.#store.remove(`${this.#key}-${name}`)))
  }

  /** Removes all that is stored. */
  removeAll(): Promise<void> {
    return this.remove(...this.#stored.keys())
  }
}

/** Whether this is the name of a connection of the process with this key. */
export function isConnectionOf(key: string, name: string): boolean {
  return CONNECTIONS.some((one) => name === `${key}-${one}`)
}

const CONNECTIONS: readonly DescriptorName[] = ['stdin-host', 'stdin-shared', 'stdout-host', 'stderr-host']

/** Whether this is the name of a process's descriptor: `p`, the process's number, and what it is for. */
export function isOfProcess(name: string): boolean {
  return /^p\d+-/.test(name)
}

/**
 * Closes the stored descriptors whose names `isOf` accepts, here and in vminit. Connections are not shut down: another
 * name may stand for the same connection.
 */
export async function discardStored(
  store: DescriptorStore,
  streams: { close(fd: Fd): void },
  isOf: (name: string) => boolean,
): Promise<void> {
  const names = store.names().filter(isOf)
  for (const name of names) {
    const fd = store.take(name)
    if (fd !== undefined) streams.close(fd)
  }
  await Promise.allSettled(names.map((name) => store.remove(name)))
}
