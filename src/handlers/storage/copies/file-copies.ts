import { neverAborted, withTimeout } from '../../../base/abort.ts'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { SerialQueue } from '../../../base/serial-queue.ts'
import { UndoList } from '../../../base/undo.ts'
import type { CopyFileRequest } from '../../../gen/agent.ts'
import type { Folder, GrowingFile } from '../../../os/files/folder.ts'
import type { Os } from '../../../os/os.ts'
import type { Call } from '../../../state/request.ts'
import { EMPTY_RESPONSE, type RequestJournal } from '../../../state/request-journal.ts'
import { KINDS, type StateStore } from '../../../state/state-store.ts'
import { type CopyWork, copyDirectory, copyLink, openParent, publish, reopenParent } from './copy-entry.ts'
import { type Copy, checkCopy, type FileChunk } from './copy-request.ts'

/** The limit of unfinished files; each holds a few descriptors and its content so far. */
const MAX_UNFINISHED = 64

/** A file without a chunk for this long may be dropped for a new one: its host, which waits a minute, has given up. */
const IDLE_MS = 60_000

/** How long a removal waits for files to be dropped, in case a file system hangs. */
const DROP_MS = 5000

/** The folder of the records of unfinished files (proto/state/copy.proto). */
const SAVED = 'copies'

/** A file of which some chunks have arrived. */
interface Unfinished extends CopyWork {
  /** Below the root. */
  readonly path: readonly string[]
  readonly temporaryName: string
  readonly folder: Folder
  readonly file: GrowingFile
  readonly sizeBytes: bigint
  /** All bytes before this offset have arrived. */
  arrivedBytes: bigint
  lastChunkMs: number
}

export interface CopyContext {
  readonly os: Pick<Os, 'files' | 'clock'>
  readonly log: Logger
  readonly root: string
  readonly state: StateStore
  readonly requests: Pick<RequestJournal, 'answer' | 'done'>
}

/**
 * Copies the host's entries into the guest; one rename(2) publishes each. Calls are serialised, because the undo of one
 * removes parents that another would use. Progress is saved before a chunk is answered.
 */
export class FileCopies {
  readonly #parts: CopyContext
  readonly #queue = new SerialQueue()
  /** By path below the root. */
  readonly #unfinished = new Map<string, Unfinished>()

  constructor(parts: CopyContext) {
    this.#parts = parts
  }

  /** Restores the previous agent's unfinished files, and drops those that changed since. Never rejects. */
  async restore(): Promise<void> {
    for (const name of this.#parts.state.list(SAVED)) {
      const work = this.#newWork()
      try {
        await this.#restoreOne(name, work)
      } catch (error) {
        this.#parts.log.warn('unfinished file lost', { name, error: messageOf(error) })
        await abandon(work)
        this.#parts.state.remove(`${SAVED}/${name}`)
      }
    }
  }

  async #restoreOne(name: string, work: CopyWork): Promise<void> {
    const saved = this.#parts.state.require(KINDS.copy, `${SAVED}/${name}`)
    const { path, temporaryName, inode, sizeBytes, arrivedBytes, parentsMade, request } = saved
    const parents = path.slice(0, -1)
    const folder = await reopenParent(await this.#openRoot(work), parents, parentsMade, work)
    if ((await folder.status(path.at(-1) ?? ''))?.inode === inode) {
      await finish(work)
      this.#parts.requests.done(request)
      this.#forget(temporaryName)
      return
    }
    const file = await folder.reopenFile(temporaryName, inode)
    const unfinished = begun(work, { path, temporaryName, folder, file, sizeBytes })
    unfinished.arrivedBytes = arrivedBytes
    unfinished.lastChunkMs = this.#parts.os.clock.monotonicMs()
    this.#unfinished.set(path.join('/'), unfinished)
  }

  /**
   * CopyFile. Throws INTERNAL for a path outside the root or the kernel's error, INVALID_ARGUMENT for other fields,
   * FAILED_PRECONDITION for a later chunk without a first one, RESOURCE_EXHAUSTED for too many unfinished files. A call
   * that has begun ignores its signal.
   */
  async copy(request: CopyFileRequest, call: Call): Promise<void> {
    const copy = checkCopy(request, call.data ?? request.data, this.#parts.root)
    await this.#queue.run(() => this.#perform(copy, call), call.signal)
  }

  /** Drops the unfinished files of a container. Never rejects. */
  async dropOf(containerId: string): Promise<void> {
    await this.#dropWhere((components) => isOfContainer(components, containerId))
  }

  /** Drops all unfinished files. Never rejects. */
  async dropAll(): Promise<void> {
    await this.#dropWhere(() => true)
  }

  async #dropWhere(isDropped: (components: readonly string[]) => boolean): Promise<void> {
    const dropping = this.#queue.run(async () => {
      for (const key of [...this.#unfinished.keys()]) if (isDropped(key.split('/'))) await this.#drop(key)
    }, neverAborted)
    const late = () => new AgentError('DEADLINE_EXCEEDED', `not dropped within ${DROP_MS} ms`)
    await withTimeout(this.#parts.os.clock, DROP_MS, dropping, late).catch((error: unknown) => {
      this.#parts.log.warn('unfinished files not removed', { error: messageOf(error) })
    })
  }

  async #perform(copy: Copy, call: Call): Promise<void> {
    const { content } = copy
    if (content.kind === 'file' && content.offset > 0n) {
      await this.#continue(copy, content, call)
      return
    }
    await this.#drop(keyOf(copy))
    if (content.kind === 'file' && content.data.length < content.sizeBytes) await this.#makeRoom()
    const work = this.#newWork()
    try {
      const folder = await openParent(await this.#openRoot(work), copy, work)
      if (content.kind === 'file') {
        await this.#begin(folder, copy, content, work)
        return
      }
      if (content.kind === 'directory') await copyDirectory(folder, copy, work)
      else await copyLink(folder, copy, content.target, work)
      await finish(work)
    } catch (error) {
      await abandon(work)
      this.#forget(copy.temporaryName)
      throw error
    }
  }

  #newWork(): CopyWork {
    return { onFailure: new UndoList(this.#parts.log), opened: new UndoList(this.#parts.log), parentsMade: 0 }
  }

  #forget(temporaryName: string): void {
    this.#parts.state.remove(`${SAVED}/${temporaryName}`)
  }

  /** Unless the first chunk is the whole file, the old entry is removed at once. */
  async #begin(folder: Folder, copy: Copy, chunk: FileChunk, work: CopyWork): Promise<void> {
    const { temporaryName, name } = copy
    // The previous agent may have left one.
    await folder.remove(temporaryName)
    const file = await folder.createFile(temporaryName)
    const path = [...copy.parents, name]
    const unfinished = begun(work, { path, temporaryName, folder, file, sizeBytes: chunk.sizeBytes })
    if (await this.#write(unfinished, copy, chunk)) return
    await folder.remove(name)
    this.#unfinished.set(keyOf(copy), unfinished)
  }

  async #continue(copy: Copy, chunk: FileChunk, call: Call): Promise<void> {
    const key = keyOf(copy)
    const unfinished = this.#unfinished.get(key)
    const { offset, sizeBytes, data } = chunk
    if (unfinished === undefined) {
      const text = `path "${this.#parts.root}/${key}": no chunk has arrived yet, want offset 0 first`
      throw new AgentError('FAILED_PRECONDITION', text)
    }
    if (sizeBytes !== unfinished.sizeBytes)
      throw invalid(`file_size: ${sizeBytes}, want ${unfinished.sizeBytes} as in the first chunk`)
    if (offset > unfinished.arrivedBytes)
      throw invalid(`offset: ${offset}, want at most the ${unfinished.arrivedBytes} bytes that have arrived`)
    try {
      if (offset + BigInt(data.length) === sizeBytes) this.#save(unfinished, call.number)
      if (!(await this.#write(unfinished, copy, chunk))) return
      // Record the answer first: if this agent dies now, the next one sends it.
      this.#parts.requests.answer(call, EMPTY_RESPONSE)
      this.#unfinished.delete(key)
      this.#forget(copy.temporaryName)
    } catch (error) {
      await this.#drop(key)
      throw error
    }
  }

  /** Returns true when the file is complete and published. */
  async #write(unfinished: Unfinished, copy: Copy, { data, offset }: FileChunk): Promise<boolean> {
    const { file, folder, sizeBytes, arrivedBytes } = unfinished
    await file.write(data, Number(offset))
    const end = offset + BigInt(data.length)
    unfinished.arrivedBytes = end > arrivedBytes ? end : arrivedBytes
    unfinished.lastChunkMs = this.#parts.os.clock.monotonicMs()
    if (unfinished.arrivedBytes < sizeBytes) {
      this.#save(unfinished, 0n)
      return false
    }
    await file.setAttributes(copy.attributes)
    await publish(folder, copy)
    await finish(unfinished)
    return true
  }

  /** `request` is the number of the request with the last bytes, 0 before it. */
  #save(unfinished: Unfinished, request: bigint): void {
    const { path, temporaryName, file, sizeBytes, arrivedBytes, parentsMade } = unfinished
    const { inode } = file
    const saved = { path: [...path], temporaryName, inode, sizeBytes, arrivedBytes, parentsMade, request }
    this.#parts.state.write(KINDS.copy, `${SAVED}/${temporaryName}`, saved)
  }

  async #openRoot({ opened }: CopyWork): Promise<Folder> {
    const { files } = this.#parts.os
    const open = async () => files.openFolder(this.#parts.root)
    const root = await open().catch(async (error: unknown) => {
      if (errnoOf(error) !== 'ENOENT') throw error
      // The host makes this folder only when it shares one with the guest.
      await files.makeDirectories(this.#parts.root, 0o755)
      return open()
    })
    opened.add('close root', () => root.close())
    return root
  }

  async #makeRoom(): Promise<void> {
    if (this.#unfinished.size < MAX_UNFINISHED) return
    const [idle] = [...this.#unfinished].sort(([, a], [, b]) => a.lastChunkMs - b.lastChunkMs)
    if (idle === undefined || this.#parts.os.clock.monotonicMs() - idle[1].lastChunkMs < IDLE_MS) {
      const text = `CopyFile: ${this.#unfinished.size} files are unfinished, want one of them completed first`
      throw new AgentError('RESOURCE_EXHAUSTED', text)
    }
    await this.#drop(idle[0])
  }

  async #drop(key: string): Promise<void> {
    const unfinished = this.#unfinished.get(key)
    if (unfinished === undefined) return
    this.#unfinished.delete(key)
    await abandon(unfinished)
    this.#forget(unfinished.temporaryName)
  }
}

async function finish({ onFailure, opened }: CopyWork): Promise<void> {
  onFailure.keep()
  await opened.run()
}

async function abandon({ onFailure, opened }: CopyWork): Promise<void> {
  await onFailure.run()
  await opened.run()
}

/** An unfinished file without bytes yet. Its undo removes the file. */
function begun(
  work: CopyWork,
  made: Omit<Unfinished, keyof CopyWork | 'arrivedBytes' | 'lastChunkMs'>,
): Unfinished {
  const { file, folder, temporaryName } = made
  work.opened.add('close file', () => file.close())
  work.onFailure.add('remove file', () => folder.remove(temporaryName))
  return { ...work, ...made, arrivedBytes: 0n, lastChunkMs: 0 }
}

function keyOf({ parents, name }: Copy): string {
  return [...parents, name].join('/')
}

/** Shims name copies `ID` or `ID-b7426f94-hosts` (8 or 16 random digits); runtime-rs puts them below `passthrough`. */
function isOfContainer(components: readonly string[], containerId: string): boolean {
  const [first = '', second = ''] = components
  const name = first === 'passthrough' ? second : first
  if (name === containerId) return true
  return name.startsWith(`${containerId}-`) && /^[0-9a-f]{8,16}-/.test(name.slice(containerId.length + 1))
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', text)
}
