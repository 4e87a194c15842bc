import { expect } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import {
  type AttachedStorages,
  createStorageHandlers,
  type StorageHandlers,
} from '../../../../src/handlers/storage/storage.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type { FileStatus } from '../../../../src/os/files/file-status.ts'
import { FakeOs } from '../../fakes/fake-os.ts'
import { recordingLog } from '../../fakes/recording-log.ts'
import { dependenciesOf, ROOT, storageOf } from './storage-builder.ts'

export const SHARED = `${ROOT}/shared/containers`
export const SOURCE = `${SHARED}/c1-volume`
export const WATCHED = `${SHARED}/watchable`
export const COPY = `${WATCHED}/c1-volume`

const CHANGING = ['write', 'rename', 'removeTree', 'symlink', 'makeDirectory', 'chmod', 'chown'] as const

export function watchable(changes: Partial<Storage> = {}): Storage {
  const bind = { driver: 'watchable-bind', fstype: 'bind', options: ['rbind', 'rprivate', 'ro'] }
  return storageOf({ ...bind, source: SOURCE, mountPoint: COPY, ...changes })
}

export function keys(count: number, content: string): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`key-${index}`, content]))
}

/** Resolves when all work that waits for no event is done. */
export function turn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve))
}

export class WatchedMachine {
  readonly os = new FakeOs()
  readonly handlers: StorageHandlers
  readonly #logged = recordingLog()

  constructor() {
    this.handlers = createStorageHandlers({ ...dependenciesOf(this.os), log: this.#logged.log })
  }

  attach(changes: Partial<Storage> = {}): Promise<AttachedStorages> {
    return this.handlers.attach([watchable(changes)], 'c1', neverAborted)
  }

  /** Advances the clock by 2 s, so the poll runs. */
  async round(): Promise<void> {
    this.os.clock.advance(2000)
    await turn()
  }

  warnings(): readonly string[] {
    return this.#logged.lines.flatMap(({ level, fields }) => (level === 'warn' ? [String(fields.error)] : []))
  }

  async statusOf(path: string): Promise<FileStatus> {
    const status = await this.os.files.lstat(path)
    if (status === undefined) throw new Error(`nothing at ${path}`)
    return status
  }

  binds(): readonly { readonly source: string; readonly target: string }[] {
    const binds = this.os.mounts.entries.filter(({ options }) => options.includes('bind'))
    return binds.map(({ source, mountPoint: target }) => ({ source, target }))
  }

  refuseToRead(errno: string): () => void {
    const { files } = this.os
    const readBytes = files.readBytes.bind(files)
    files.readBytes = async (path) => Promise.reject(kernelError('read', path, errno))
    return () => {
      files.readBytes = readBytes
    }
  }

  /** Holds calls of this name back until the returned function is called; reads only at the source. */
  holdBack(name: 'lstat' | 'readBytes' | 'rename'): () => void {
    const { files } = this.os
    const gate = Promise.withResolvers<void>()
    const call: (path: string, ...more: never[]) => Promise<unknown> = files[name].bind(files)
    const held = async (path: string, ...more: never[]) => {
      if (name === 'rename' || path.startsWith(SOURCE)) await gate.promise
      return call(path, ...more)
    }
    Object.assign(files, { [name]: held })
    return gate.resolve
  }

  onEachChange(look: () => Promise<void>): void {
    const { files } = this.os
    for (const name of CHANGING) {
      const change: (...words: never[]) => Promise<void> = files[name].bind(files)
      files[name] = async (...words: never[]) => {
        await change(...words)
        await look()
      }
    }
  }

  countCalls(): () => { reads: number; changes: number } {
    const counted = { reads: 0, changes: 0 }
    this.onEachChange(async () => {
      counted.changes += 1
    })
    const { files } = this.os
    const readBytes = files.readBytes.bind(files)
    files.readBytes = (path) => {
      counted.reads += 1
      return readBytes(path)
    }
    return () => counted
  }

  async expectNothingLeft(): Promise<void> {
    const { clock, files, mounts } = this.os
    expect(mounts.entries.map(({ mountPoint }) => mountPoint)).toEqual(['/'])
    expect(await files.list(WATCHED)).toEqual([])
    expect(files.openFolders).toBe(0)
    expect(clock.sleeping).toBe(0)
  }
}
