import { neverAborted } from '../../base/abort.ts'
import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import type { Waiting } from '../../state/request.ts'
import type { ContainerProcess } from './process.ts'

type Entry =
  | { readonly name: 'starting'; readonly interrupt: (reason: AgentError) => void }
  /** The exec has failed, and a search for the process that it may have added is under way. */
  | { readonly name: 'failed' }
  | { readonly name: 'tracked'; readonly process: ContainerProcess }

/** An exec id that is reserved for a process about to start. `publish` or `abandon` must follow. */
export interface Reservation {
  publish(process: ContainerProcess): void
  /** Begins the search for a process that the failed exec may have added. */
  searchUntracked(): void
  abandon(): void
}

/** Processes whose exit status may still be asked for. The first one has two exec ids: '' and the container's id. */
export class ProcessTable {
  /** Searches for untracked processes run one after the other: each waits for the exits of what it found. */
  readonly untrackedSearch = new SerialQueue()
  readonly #container: { readonly id: string }
  readonly #entries = new Map<string, Entry>()
  readonly #changes = new Changes()

  constructor(container: { readonly id: string }, init: ContainerProcess) {
    this.#container = container
    this.#entries.set('', { name: 'tracked', process: init })
  }

  /** Throws INTERNAL when the id is in use. `interrupt` is called when the container is about to be removed. */
  reserve(execId: string, interrupt: (reason: AgentError) => void = () => {}): Reservation {
    const key = this.#key(execId)
    if (this.#entries.has(key))
      throw new AgentError('INTERNAL', `exec_id '${execId}' already exists`, { fault: 'caller' })
    const become = (entry: Entry | undefined) => {
      if (entry === undefined) this.#entries.delete(key)
      else this.#entries.set(key, entry)
      this.#changes.announce()
    }
    become({ name: 'starting', interrupt })
    return {
      publish: (process) => become({ name: 'tracked', process }),
      searchUntracked: () => become({ name: 'failed' }),
      abandon: () => become(undefined),
    }
  }

  restore(execId: string, process: ContainerProcess): void {
    this.#entries.set(this.#key(execId), { name: 'tracked', process })
  }

  /** Looks the process up now. Throws NOT_FOUND when it is missing or still being started. */
  get(execId: string): ContainerProcess {
    const process = this.find(execId)
    if (process === undefined) throw this.#notFound(execId)
    return process
  }

  find(execId: string): ContainerProcess | undefined {
    const entry = this.#entries.get(this.#key(execId))
    return entry?.name === 'tracked' ? entry.process : undefined
  }

  /** Waits for the end of a start. Throws NOT_FOUND, or the reason of `signal`. */
  async waitFor(execId: string, call: Waiting): Promise<ContainerProcess> {
    const key = this.#key(execId)
    while ((this.#entries.get(key)?.name ?? 'tracked') !== 'tracked') await this.#changes.next(call.signal)
    return this.get(execId)
  }

  /** Frees the process's id, if it has one. The caller closes its streams. */
  forget(process: ContainerProcess): void {
    for (const [execId, entry] of this.#entries)
      if (entry.name === 'tracked' && entry.process === process) this.#entries.delete(execId)
  }

  /** Whether a process has this id, also one that is just being added. */
  has(execId: string): boolean {
    return this.#entries.has(execId)
  }

  /** Whether a process is being added. */
  get isAdding(): boolean {
    return [...this.#entries.values()].some(({ name }) => name !== 'tracked')
  }

  tracked(): ContainerProcess[] {
    return [...this.#entries.values()].flatMap((entry) => (entry.name === 'tracked' ? [entry.process] : []))
  }

  /** The exec id of the first process is empty. */
  trackedByExecId(): readonly (readonly [execId: string, process: ContainerProcess])[] {
    return [...this.#entries].flatMap(([execId, entry]) =>
      entry.name === 'tracked' ? [[execId, entry.process] as const] : [],
    )
  }

  /** Makes the starts under way fail with a `reason` and undo themselves. */
  interruptStarts(reason: () => AgentError): void {
    for (const entry of this.#entries.values()) {
      if (entry.name === 'starting') entry.interrupt(reason())
    }
  }

  /** Waits until no start is under way. Returns whether one was. Throws the reason of `signal`. */
  settled(signal: AbortSignal): Promise<boolean> {
    return this.#untilNone(['starting', 'failed'], signal)
  }

  /** Like `settled`, but does not wait for failed starts whose processes are being searched for. */
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
    return execId === this.#container.id ? '' : execId
  }

  #notFound(execId: string): AgentError {
    const what = this.#key(execId) === '' ? 'init process missing' : 'invalid exec id'
    return new AgentError('NOT_FOUND', `Process not found: ${what}`)
  }
}
