import { abortable } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { ContainerProcess } from '../process/process.ts'

type State =
  | { readonly name: 'none' }
  /** `settled` resolves when the container was created, or its creation failed. */
  | { readonly name: 'making'; readonly maker: string; readonly settled: Promise<void> }
  | { readonly name: 'made'; readonly maker: string; readonly init: Pick<ContainerProcess, 'status'> }

/**
 * The pid namespace that containers of a sandbox may share (behaviour spec, section D.3): that of its first container,
 * whether that one asked for it or not. It belongs to that container, its maker, and ends with the maker's first
 * process, when the kernel kills all others in it; once the maker is removed the next container makes a new one.
 */
export class SharedPidNamespace {
  /** Where it is pinned. */
  readonly path: string
  #state: State = { name: 'none' }
  #endMaking: () => void = () => {}

  constructor(path: string) {
    this.path = path
  }

  /** Makes container `id`, which is being created, the maker if there is none. True when it is the maker. */
  begin(id: string): boolean {
    if (this.#state.name === 'none') {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#endMaking = resolve
      this.#state = { name: 'making', maker: id, settled: promise }
    }
    return this.#state.maker === id
  }

  /** Container `id` was created: others may join it now, if it is the maker. */
  made(id: string, init: Pick<ContainerProcess, 'status'>): void {
    if (this.#state.name !== 'making' || this.#state.maker !== id) return
    this.#state = { name: 'made', maker: id, init }
    this.#endMaking()
  }

  /** Container `id` is gone, and with it what it made. */
  gone(id: string): void {
    if (this.#state.name === 'none' || this.#state.maker !== id) return
    this.#state = { name: 'none' }
    this.#endMaking()
  }

  /**
   * The path that container `id`, which asks for it, joins; undefined when it is, or has now become, the maker. Waits
   * for another maker that is being created. Throws INTERNAL when the namespace has ended and its maker is still
   * there: a kernel starts no process in it any more.
   */
  async joinedBy(id: string, signal: AbortSignal): Promise<string | undefined> {
    while (!this.begin(id)) {
      const state: State = this.#state
      if (state.name === 'making') {
        await abortable(state.settled, signal)
      } else if (state.name === 'made') {
        if (state.init.status === undefined) return this.path
        const text = `Sandbox does not have sandbox_pidns: it ended with container ${state.maker}, which is to be removed first`
        throw new AgentError('INTERNAL', text)
      }
    }
    return undefined
  }
}
