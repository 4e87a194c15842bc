import { dirname } from 'node:path/posix'
import { Changes } from '../../../base/changes.ts'
import { AgentError } from '../../../base/errors.ts'
import type { UndoList } from '../../../base/undo.ts'
import type { Os } from '../../../os/os.ts'
import type { ContainerProcess } from '../../process/process.ts'

type State =
  | { readonly name: 'none' }
  | { readonly name: 'making'; readonly maker: string }
  | { readonly name: 'made'; readonly maker: string; readonly init: Pick<ContainerProcess, 'status'> }

/**
 * The pid namespace that containers of a sandbox may share: the one of the sandbox's first container, its maker,
 * whether the maker asked for it or not. It ends with the maker's first process, when the kernel kills all other
 * processes in it. Once the maker is removed, the next container makes a new one.
 */
export class SharedPidNamespace {
  /** The file that it is pinned as. */
  readonly path: string
  #state: State = { name: 'none' }
  readonly #changes = new Changes()

  constructor(path: string) {
    this.path = path
  }

  /** Makes container `id`, which is being created, the maker if there is none. Tells whether it is the maker. */
  begin(id: string): boolean {
    if (this.#state.name === 'none') this.#state = { name: 'making', maker: id }
    return this.#state.maker === id
  }

  /** Container `id` was created. If it is the maker, others may join the namespace now. */
  made(id: string, init: Pick<ContainerProcess, 'status'>): void {
    if (this.#state.name !== 'making' || this.#state.maker !== id) return
    this.#state = { name: 'made', maker: id, init }
    this.#changes.announce()
  }

  /** Container `id` was removed, or its creation failed. If it was the maker, the namespace has ended. */
  gone(id: string): void {
    if (this.#state.name === 'none' || this.#state.maker !== id) return
    this.#state = { name: 'none' }
    this.#changes.announce()
  }

  /**
   * The path of the namespace for container `id` to join; undefined when the container is the maker, or becomes it now.
   * Waits while another maker is being created. Throws INTERNAL when the namespace has ended and its maker is not
   * removed yet: the kernel starts no process in it any more.
   */
  async joinedBy(id: string, signal: AbortSignal): Promise<string | undefined> {
    while (!this.begin(id)) {
      const state: State = this.#state
      if (state.name === 'making') {
        await this.#changes.next(signal)
      } else if (state.name === 'made') {
        if (state.init.status === undefined) return this.path
        const text = `Sandbox does not have sandbox_pidns: it ended with container ${state.maker}, which is to be removed first`
        throw new AgentError('INTERNAL', text)
      }
    }
    return undefined
  }
}

/**
 * Pins the pid namespace of process `pid` as the file `target`, by a bind mount: the path of the namespace in /proc
 * contains a number that may become another process's.
 */
export async function pinPidNamespace(options: {
  readonly os: Os
  readonly target: string
  readonly pid: number
  readonly onRemove: UndoList
}): Promise<void> {
  const { os, target, pid, onRemove } = options
  await os.files.makeDirectories(dirname(target), 0o755)
  await os.files.write(target, '')
  onRemove.add('pid namespace file', () => os.files.removeFile(target))
  const source = `/proc/${pid}/ns/pid`
  await os.mounts.mount({ source, target, type: '', flags: ['bind'], data: '' })
  onRemove.add('pid namespace mount', () => os.mounts.unmount(target, { detach: true }))
}
