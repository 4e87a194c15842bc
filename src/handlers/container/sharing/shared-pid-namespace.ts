import { dirname } from 'node:path/posix'
import { Changes } from '../../../base/changes.ts'
import { AgentError } from '../../../base/errors.ts'
import type { UndoList } from '../../../base/undo.ts'
import type { Os } from '../../../os/os.ts'
import type { ContainerProcess } from '../../process/process.ts'

interface Maker {
  readonly key: string
  readonly id: string
}

type State =
  | { readonly name: 'none' }
  | { readonly name: 'making'; readonly maker: Maker }
  | { readonly name: 'made'; readonly maker: Maker; readonly init: Pick<ContainerProcess, 'status'> }

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

  /** Makes a container the maker if there is none. Returns whether it is the maker. */
  begin(container: Maker): boolean {
    if (this.#state.name === 'none') this.#state = { name: 'making', maker: container }
    return this.#state.maker.key === container.key
  }

  /** The container was created. If it is the maker, others may join now. */
  made(key: string, init: Pick<ContainerProcess, 'status'>): void {
    if (this.#state.name !== 'making' || this.#state.maker.key !== key) return
    this.#state = { name: 'made', maker: this.#state.maker, init }
    this.#changes.announce()
  }

  /** The container was removed, or its creation failed. If it is the maker, the namespace has ended. */
  gone(key: string): void {
    if (this.#state.name === 'none' || this.#state.maker.key !== key) return
    this.#state = { name: 'none' }
    this.#changes.announce()
  }

  /**
   * The path of the namespace to join; undefined when the container is or becomes the maker. Waits while another maker is
   * being created. Throws INTERNAL when the namespace has ended but its maker is not removed: nothing can fork in it.
   */
  async joinedBy(container: Maker, signal: AbortSignal): Promise<string | undefined> {
    while (!this.begin(container)) {
      const state: State = this.#state
      if (state.name === 'making') {
        await this.#changes.next(signal)
      } else if (state.name === 'made') {
        if (state.init.status === undefined) return this.path
        const text = `Sandbox does not have sandbox_pidns: it ended with container ${state.maker.id}, which is to be removed first`
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
