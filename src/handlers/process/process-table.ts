import { neverAborted } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { ContainerProcess } from './process.ts'

type Entry =
  | { readonly name: 'starting'; readonly interrupt: AbortController }
  /** The exec has failed, and a search for the process that it may have added is under way. */
  | { readonly name: 'failed' }
  | { readonly name: 'tracked'; readonly process: ContainerProcess }

/** An exec id that is taken for a process about to start. Either `publish` or `abandon` must follow. */
export interface Reservation {
  /** Fires when the start must not go on, because the container is about to be removed. */
  readonly interrupted: AbortSignal
  publish(process: ContainerProcess): void
  /** The exec may have added a process that will never be tracked, and the search for it begins. */
  searchUntracked(): void
  abandon(): void
}

/**
 * The processes of one container whose exit status may still be asked for, by exec id. The first process has the empty id
 * and the container's own. Exec ids are free text.
 */
export class ProcessTable {
  /** Searches for untracked processes run one after the other: each waits for the exits of what it found. */
  readonly untrackedSearch = new SerialQueue()
  readonly #containerId: string
  readonly #entries = new Map<string, Entry>()
  readonly #changes = new Changes()

  constructor(containerId: string, init: ContainerProcess) {
    this.#containerId = containerId
    this.#entries.set('', { name: 'tracked', process: init })
  }

  /** Takes an id. Throws INTERNAL when it is in use. */
  reserve(execId: string): Reservation {
    const key = this.#key(execId)
    if (this.#entries.has(key))
      throw new AgentError('INTERNAL', `exec_id '${execId}' already exists`, { fault: 'caller' })
    const interrupt = new AbortController()
    const become = (entry: Entry | undefined) => {
      if (entry === undefined) this.#entries.delete(key)
      else this.#entries.set(key, entry)
      this.#changes.announce()
    }
    become({ name: 'starting', interrupt })
    return {
      interrupted: interrupt.signal,
      publish: (process) => become({ name: 'tracked', process }),
      searchUntracked: () => become({ name: 'failed' }),
      abandon: () => become(undefined),
    }
  }

  /** Adds a process that the previous agent made. */
  restore(execId: string, process: ContainerProcess): void {
    this.#entries.set(this.#key(execId), { name: 'tracked', process })
  }

  /** The process as things stand. Throws NOT_FOUND for one that is not there, or not yet. */
  get(execId: string): ContainerProcess {
    const process = this.find(execId)
    if (process === undefined) throw this.#notFound(execId)
    return process
  }

  /** The same, or undefined. */
  find(execId: string): ContainerProcess | undefined {
    const entry = this.#entries.get(this.#key(execId))
    return entry?.name === 'tracked' ? entry.process : undefined
  }

  /** The process, once a start under way is over. Throws NOT_FOUND, or what `signal` is aborted with. */
  async waitFor(execId: string, signal: AbortSignal): Promise<ContainerProcess> {
    const key = this.#key(execId)
    while ((this.#entries.get(key)?.name ?? 'tracked') !== 'tracked') await this.#changes.next(signal)
    return this.get(execId)
  }

  /** Frees the id, if it still names this process. The caller closes its streams. */
  forget(execId: string, process: ContainerProcess): void {
    const key = this.#key(execId)
    const entry = this.#entries.get(key)
    if (entry?.name === 'tracked' && entry.process === process) this.#entries.delete(key)
  }

  /** All processes of the table. */
  tracked(): ContainerProcess[] {
    return [...this.#entries.values()].flatMap((entry) => (entry.name === 'tracked' ? [entry.process] : []))
  }

  /** The same with the exec ids, that of the first process empty. */
  trackedByExecId(): readonly (readonly [execId: string, process: ContainerProcess])[] {
    return [...this.#entries].flatMap(([execId, entry]) =>
      entry.name === 'tracked' ? [[execId, entry.process] as const] : [],
    )
  }

  /** Ends the starts under way with `reason`: they fail, and undo themselves. */
  interruptStarts(reason: AgentError): void {
    for (const entry of this.#entries.values()) {
      if (entry.name === 'starting') entry.interrupt.abort(reason)
    }
  }

  /** Resolves when no start is under way, with whether one was. Throws the reason of `signal` when that fires first. */
  settled(signal: AbortSignal): Promise<boolean> {
    return this.#untilNone(['starting', 'failed'], signal)
  }

  /** Like {@link ProcessTable.settled}, but does not wait for starts that have failed and are being searched. */
  added(): Promise<boolean> {
    return this.#untilNone(['starting'], neverAborted)
  }

  async #untilNone(names: readonly Entry['name'][], signal: AbortSignal): Promise<boolean> {
    const areAny = () => [...this.#entries.values()].some(({ name }) => names.includes(name))
    let wereAny = false
    for (; areAny(); wereAny = true) await this.#changes.next(signal)
    return wereAny
  }

  #key(execId: string): string {
    return execId === this.#containerId ? '' : execId
  }

  #notFound(execId: string): AgentError {
    const what = this.#key(execId) === '' ? 'init process missing' : 'invalid exec id'
    return new AgentError('NOT_FOUND', `Process not found: ${what}`)
  }
}
