import { kernelError } from '../../../../src/os/errors.ts'
import type { CgroupEvents } from '../../../../src/os/process/cgroup-events.ts'
import type { FakeFiles } from '../files/fake-files.ts'

interface Listener {
  readonly path: string
  readonly happened: () => void
}

export class FakeCgroupEvents implements CgroupEvents {
  readonly #files: FakeFiles
  readonly #listeners = new Set<Listener>()

  constructor(files: FakeFiles) {
    this.#files = files
  }

  get watched(): readonly string[] {
    return [...this.#listeners].map(({ path }) => path)
  }

  onModified(path: string, happened: () => void): { close(): void } {
    if (!this.#files.has(path)) throw kernelError('watch', path, 'ENOENT')
    return this.#listen({ path, happened })
  }

  onNotified(folder: string, file: string, happened: () => void): { close(): void } {
    return this.onModified(`${folder}/${file}`, happened)
  }

  happen(path: string): void {
    for (const listener of [...this.#listeners]) if (listener.path === path) listener.happened()
  }

  #listen(listener: Listener): { close(): void } {
    this.#listeners.add(listener)
    return { close: () => this.#listeners.delete(listener) }
  }
}
