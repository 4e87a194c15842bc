import { AgentError } from '../../../../src/base/errors.ts'
import type { Fd } from '../../../../src/os/streams/streams.ts'
import type { DescriptorStore } from '../../../../src/os/supervisor/supervisor.ts'
import type { FakeStreams } from '../streams/fake-streams.ts'

/** The store in vminit. {@link restart} hands everything over to a next agent. */
export class FakeDescriptors implements DescriptorStore {
  /** How many descriptors it takes. */
  capacity = Number.POSITIVE_INFINITY
  readonly #streams: FakeStreams
  readonly #stored = new Map<string, Fd>()
  readonly #inherited = new Map<string, Fd>()

  constructor(streams: FakeStreams) {
    this.#streams = streams
  }

  /** The names of all that is stored. */
  get stored(): readonly string[] {
    return [...this.#stored.keys()].sort()
  }

  /** vminit's own descriptors. */
  get fds(): readonly Fd[] {
    return [...this.#stored.values()]
  }

  /** Hands over what is stored, as to an agent that is started again. */
  restart(): void {
    this.#inherited.clear()
    for (const [name, fd] of this.#stored) this.#inherited.set(name, this.#streams.duplicate(fd))
  }

  take(name: string): Fd | undefined {
    const fd = this.#inherited.get(name)
    this.#inherited.delete(name)
    return fd
  }

  handOver(name: string, fd: Fd): void {
    this.#inherited.set(name, fd)
  }

  names(): readonly string[] {
    return [...this.#inherited.keys()]
  }

  store(name: string, fd: Fd): Promise<void> {
    if (!/^[a-z0-9-]{1,31}$/.test(name)) throw new Error(`not a name: ${name}`)
    if (this.#stored.has(name)) throw new Error(`stored already: ${name}`)
    if (this.#stored.size < this.capacity) {
      this.#stored.set(name, this.#streams.duplicate(fd))
      return Promise.resolve()
    }
    const text = `store descriptor ${name} in vminit: ENOSPC: the store is full`
    const refused = Promise.reject(new AgentError('RESOURCE_EXHAUSTED', text))
    refused.catch(() => {})
    return refused
  }

  async remove(name: string): Promise<void> {
    const fd = this.#stored.get(name)
    this.#stored.delete(name)
    if (fd !== undefined) this.#streams.close(fd)
  }
}
