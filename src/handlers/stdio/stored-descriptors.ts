import type { Fd } from '../../os/streams/streams.ts'
import type { DescriptorStore } from '../../os/supervisor/supervisor.ts'

/**
 * Of stream X, `X-data` has bytes moved by calls, `X-pipe` bytes of a pty or socket; `X-host` is its connection, `X-kept`
 * what is not acknowledged, `X-sent` what of that is not sent.
 */
export type DescriptorName =
  | StreamDescriptor
  /** Replaces `stdin-host` when the terminal's output uses the same connection. */
  | 'stdin-shared'
  /** Marks that input by a port ends with what has arrived. */
  | 'stdin-end'
  /** The terminal; `stdin` is a duplicate of it. */
  | 'master'
  /** The console socket, until the terminal is received. */
  | 'console'

type StreamDescriptor =
  `${'stdin' | 'stdout' | 'stderr'}${'' | '-data' | '-pipe' | '-host' | '-kept' | '-sent'}`

/** A process's descriptors in vminit's store, under its key. A stream whose own name is missing is closed. */
export class StoredDescriptors {
  readonly #store: DescriptorStore
  readonly key: string
  /** With the answers to wait for. */
  readonly #stored = new Map<DescriptorName, Promise<void> | undefined>()
  #isForgotten = false

  constructor(store: DescriptorStore, key: string) {
    this.#store = store
    this.key = key
  }

  /** The caller keeps `fd`. The stored descriptor survives the agent, unless {@link accepted} throws. */
  put(name: DescriptorName, fd: Fd): void {
    this.#stored.set(name, this.#store.store(`${this.key}-${name}`, fd))
  }

  /** The same for a process's three streams, by one message. Throws RESOURCE_EXHAUSTED when the store is full. */
  putStreams({ stdin, stdout, stderr }: Readonly<Record<'stdin' | 'stdout' | 'stderr', Fd>>): void {
    const { key } = this
    this.#store.storeAll({
      [`${key}-stdin`]: stdin,
      [`${key}-stdout`]: stdout,
      [`${key}-stderr`]: stderr,
    })
    for (const name of ['stdin', 'stdout', 'stderr'] as const) this.#stored.set(name, undefined)
  }

  /** Throws RESOURCE_EXHAUSTED when vminit refused a descriptor; the caller then removes what it stored. */
  async accepted(): Promise<void> {
    await Promise.all(this.#stored.values())
  }

  /** A descriptor of the previous agent; the caller owns it. */
  take(name: DescriptorName): Fd | undefined {
    const fd = this.#store.take(`${this.key}-${name}`)
    if (fd !== undefined) this.#stored.set(name, undefined)
    return fd
  }

  /** Lets {@link take} return `fd`, and stores it unless it is stored. */
  handOver(name: DescriptorName, fd: Fd, isStored: boolean): void {
    if (!isStored) this.put(name, fd)
    this.#store.handOver(`${this.key}-${name}`, fd)
  }

  /** Whether this agent has stored or taken it. */
  holds(name: DescriptorName): boolean {
    return this.#stored.has(name)
  }

  has(name: DescriptorName): boolean {
    return this.#store.names().includes(`${this.key}-${name}`)
  }

  /** Ignores names that are not stored. Resolves when vminit has closed the others; never rejects. */
  async remove(...names: readonly DescriptorName[]): Promise<void> {
    const stored = names.filter((name) => this.#stored.delete(name))
    const full = stored.map((name) => `${this.key}-${name}`)
    if (this.#isForgotten) this.#store.drop(...full)
    // A removal fails only without vminit, where nothing is open then.
    else if (full.length > 0) await this.#store.remove(...full).catch(() => {})
  }

  /** Nobody waits any more until vminit has closed what is removed. */
  forget(): void {
    this.#isForgotten = true
  }

  removeAll(): Promise<void> {
    return this.remove(...this.#stored.keys())
  }
}

export function isConnectionOf(key: string, name: string): boolean {
  return CONNECTIONS.some((one) => name === `${key}-${one}`)
}

const CONNECTIONS: readonly DescriptorName[] = ['stdin-host', 'stdin-shared', 'stdout-host', 'stderr-host']

/** The names of process descriptors: `p`, the process's number, and the purpose. */
export function isOfProcess(name: string): boolean {
  return /^p\d+-/.test(name)
}

/** Closes descriptors here and in vminit, without shutting connections down: another name may share a connection. */
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
  if (names.length > 0) await store.remove(...names).catch(() => {})
}
