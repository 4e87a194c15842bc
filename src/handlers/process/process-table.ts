import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { ContainerProcess } from './process.ts'

type Entry =
  | { readonly name: 'starting'; readonly settled: Promise<void>; readonly added: Promise<void> }
  /** What it may have added is being looked for. */
  | { readonly name: 'failed'; readonly settled: Promise<void> }
  | { readonly name: 'known'; readonly process: ContainerProcess }

/** A name in the table that is taken for a process about to start. It must be published, or else abandoned. */
export interface Reservation {
  publish(process: ContainerProcess): void
  /** Nobody will know the process, if there is one: it is looked for, before {@link Reservation.abandon}. */
  failed(): void
  abandon(): void
}

/**
 * The processes of one container that somebody may still ask about, by exec id. The first process is found under
 * the empty id and under the container's own. Exec ids are free text.
 */
export class ProcessTable {
  /** For those who look for processes that nobody knows: of two at once one would wait for an end that the other saw. */
  readonly untrackedSearch = new SerialQueue()
  readonly #containerId: string
  readonly #entries = new Map<string, Entry>()

  constructor(containerId: string, init: ContainerProcess) {
    this.#containerId = containerId
    this.#entries.set('', { name: 'known', process: init })
  }

  /** Takes an id. Throws INTERNAL when it is in use. */
  reserve(execId: string): Reservation {
    const key = this.#key(execId)
    if (this.#entries.has(key)) throw new AgentError('INTERNAL', `exec_id '${execId}' already exists`)
    const [added, settled] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    this.#entries.set(key, { name: 'starting', settled: settled.promise, added: added.promise })
    const settle = () => {
      added.resolve()
      settled.resolve()
    }
    return {
      publish: (process) => {
        this.#entries.set(key, { name: 'known', process })
        settle()
      },
      failed: () => {
        this.#entries.set(key, { name: 'failed', settled: settled.promise })
        added.resolve()
      },
      abandon: () => {
        this.#entries.delete(key)
        settle()
      },
    }
  }

  /** The process as things stand. Throws NOT_FOUND for one that is not there, or not yet. */
  get(execId: string): ContainerProcess {
    const entry = this.#entries.get(this.#key(execId))
    if (entry?.name !== 'known') throw this.#notFound(execId)
    return entry.process
  }

  /** The process, once a start in progress is through. Throws NOT_FOUND, or what `signal` is aborted with. */
  async waitFor(execId: string, signal: AbortSignal): Promise<ContainerProcess> {
    const entry = this.#entries.get(this.#key(execId))
    if (entry !== undefined && 'settled' in entry) await abortable(entry.settled, signal)
    return this.get(execId)
  }

  /** Frees the id, if it still names this process. The caller closes its streams. */
  forget(execId: string, process: ContainerProcess): void {
    const key = this.#key(execId)
    const entry = this.#entries.get(key)
    if (entry?.name === 'known' && entry.process === process) this.#entries.delete(key)
  }

  /** All known processes. */
  known(): ContainerProcess[] {
    return [...this.#entries.values()].flatMap((entry) => (entry.name === 'known' ? [entry.process] : []))
  }

  /** Resolves when the starts in progress are through, with whether there were any. */
  async settled(): Promise<boolean> {
    const starts = [...this.#entries.values()].flatMap((entry) => ('settled' in entry ? [entry.settled] : []))
    await Promise.all(starts)
    return starts.length > 0
  }

  /** Like {@link ProcessTable.settled}, but does not wait for starts that have failed. */
  async added(): Promise<boolean> {
    const starts = [...this.#entries.values()].flatMap((entry) =>
      entry.name === 'starting' ? [entry.added] : [],
    )
    await Promise.all(starts)
    return starts.length > 0
  }

  #key(execId: string): string {
    return execId === this.#containerId ? '' : execId
  }

  #notFound(execId: string): AgentError {
    const what = this.#key(execId) === '' ? 'init process missing' : 'invalid exec id'
    return new AgentError('NOT_FOUND', `Process not found: ${what}`)
  }
}
