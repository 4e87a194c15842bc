import type { StateFiles, StateRoom } from '../../../../src/os/files/state-files.ts'

export class MemoryStateFiles implements StateFiles {
  readonly #files = new Map<string, Uint8Array>()
  free: StateRoom = { bytes: 1024 ** 3, files: 1024 ** 2 }
  writtenBytes = 0
  beforeChange: (path: string) => void = () => {}

  write(path: string, bytes: Uint8Array): void {
    this.beforeChange(path)
    this.writtenBytes += bytes.length
    this.#files.set(path, bytes)
  }

  read(path: string): Uint8Array | undefined {
    return this.#files.get(path)
  }

  size(path: string): number | undefined {
    return this.#files.get(path)?.length
  }

  room(): StateRoom {
    return this.free
  }

  remove(path: string): void {
    this.beforeChange(path)
    for (const name of this.names()) {
      if (path === '' || name === path || name.startsWith(`${path}/`)) this.#files.delete(name)
    }
  }

  list(folder: string): readonly string[] {
    const prefix = folder === '' ? '' : `${folder}/`
    const below = this.names().filter((name) => name.startsWith(prefix))
    return [...new Set(below.map((name) => name.slice(prefix.length).split('/')[0] ?? ''))].sort()
  }

  names(): readonly string[] {
    return [...this.#files.keys()]
  }
}
