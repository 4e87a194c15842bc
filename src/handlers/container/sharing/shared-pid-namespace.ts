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
 * The pid namespace that containers may share: that of the sandbox's first container, the maker, whether the maker asked for
 * it or not. When the maker's first process ends, the kernel kills all others in it (pid_namespaces(7)). Once the maker is
 * removed, the next container makes a new one.
 */
export class SharedPidNamespace {
  /** The file that the namespace is bind-mounted on. */
  readonly path: string
  #state: State = { name: 'none' }
  readonly #changes = new Changes()

  constructor(path: string) {
    this.path = path
  }

  /** Makes container `id` the maker if there is none. Returns whether `id` is the maker. */
  begin(id: string): boolean {
    if (this.#state.name === 'none') this.#state = { name: 'making', maker: id }
    return this.#state.maker === id
  }

  /** Container `id` was created. If it is the maker, others may join now. */
  made(id: string, init: Pick<ContainerProcess, 'status'>): void {
    if (this.#state.name !== 'making' || this.#state.maker !== id) return
    this.#state = { name: 'made', maker: id, init }
    this.#changes.announce()
  }

  /** Container `id` was removed, or its creation failed. If it is the maker, the namespace has ended. */
  gone(id: string): void {
    if (this.#state.name === 'none' || this.#state.maker !== id) return
    this.#state = { name: 'none' }
    this.#changes.announce()
  }

  /**
   * The path of the namespace to join; undefined when container `id` is or becomes the maker. Waits while another maker is
   * being created. Throws INTERNAL when the namespace has ended but its maker is not removed: nothing can fork in it.
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

/** Bind-mounts the pid namespace of process `pid` on `target`, because the pid in its path in /proc may be reused. */
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
