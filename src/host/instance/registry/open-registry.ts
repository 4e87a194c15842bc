import { extname, join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { checkChanges } from './check-changes.ts'
import type { RebuildReport } from './rebuild.ts'
import type { Change, Registry, Table } from './registry.ts'
import type { Answer, Request, WorkerData } from './worker-messages.ts'

/** Changes that wait for a slow disk. */
export const MAX_WAITING_BYTES = 64 * 1024 * 1024
/** What a change costs besides its key and payload. */
const CHANGE_BYTES = 200

/** Beside this file also in a bundle, which has it as an entry point of its own. */
const WORKER = join(import.meta.dirname, `registry-worker${extname(import.meta.filename)}`)

export interface SqliteRegistry extends Registry {
  readonly statistics: { readonly commits: number; readonly transactions: number }
}

/**
 * Opens the registry of a daemon's state folder, or makes an empty one. Throws FAILED_PRECONDITION, in one sentence, when
 * another daemon has the folder, and when the registry is damaged or newer.
 */
export async function openRegistry(stateFolder: string): Promise<SqliteRegistry> {
  const thread = new Thread({ stateFolder, rebuilds: false })
  await thread.started
  return new GroupedRegistry(thread)
}

/** Makes the registry anew from the specifications of the instances; the old one stays under another name. */
export async function rebuildRegistry(stateFolder: string): Promise<RebuildReport> {
  const report = await new Thread({ stateFolder, rebuilds: true }).started
  return report as RebuildReport // what the worker's rebuild() has returned
}

class Thread {
  readonly started: Promise<unknown>
  readonly #worker: Worker
  readonly #asked: { resolve: (value: unknown) => void; reject: (error: AgentError) => void }[] = []
  #ended: AgentError | undefined

  constructor(workerData: WorkerData) {
    this.#worker = new Worker(WORKER, { workerData, name: 'registry', execArgv: [] })
    this.#worker.on('message', (answer: Answer) => this.#answered(answer))
    this.#worker.on('error', (error) => this.#end(messageOf(error)))
    this.#worker.on('exit', () => this.#end('closed'))
    this.started = this.#answer()
  }

  ask(request: Request): Promise<unknown> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended)
    this.#worker.postMessage(request)
    return this.#answer()
  }

  #answer(): Promise<unknown> {
    return new Promise((resolve, reject) => this.#asked.push({ resolve, reject }))
  }

  #answered(answer: Answer): void {
    const asked = this.#asked.shift()
    if ('value' in answer) asked?.resolve(answer.value)
    else
      asked?.reject(new AgentError(answer.error.code, answer.error.message, errnoOption(answer.error.errno)))
  }

  #end(reason: string): void {
    this.#ended ??= new AgentError('INTERNAL', `registry: ${reason}`)
    for (const { reject } of this.#asked.splice(0)) reject(this.#ended)
  }
}

function errnoOption(errno: string | undefined): { errno?: string } {
  return errno === undefined ? {} : { errno }
}

interface Commit {
  readonly changes: readonly Change[]
  readonly frees: boolean
  readonly bytes: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

class GroupedRegistry implements SqliteRegistry {
  readonly statistics = { commits: 0, transactions: 0 }
  readonly #thread: Thread
  #waiting: Commit[] = []
  #waitingBytes = 0
  #writing: Promise<void> | undefined
  #closing: Promise<void> | undefined

  constructor(thread: Thread) {
    this.#thread = thread
  }

  async load(table: Table): Promise<ReadonlyMap<string, Uint8Array>> {
    return (await this.#thread.ask({ kind: 'load', table })) as ReadonlyMap<string, Uint8Array> // Database.rows()
  }

  async commit(changes: readonly Change[], { frees = false } = {}): Promise<void> {
    if (this.#closing !== undefined) throw new AgentError('INTERNAL', 'registry: closed')
    checkChanges(changes)
    const bytes = changes.reduce(
      (sum, { key, payload }) => sum + CHANGE_BYTES + key.length + (payload?.length ?? 0),
      0,
    )
    if (this.#waitingBytes + bytes > MAX_WAITING_BYTES) {
      throw new AgentError(
        'RESOURCE_EXHAUSTED',
        `registry: more than ${MAX_WAITING_BYTES} bytes wait for the disk`,
      )
    }
    this.#waitingBytes += bytes
    // A view would take the whole buffer below it to the other thread.
    const copies = changes.map((change) => ({
      ...change,
      payload: change.payload && new Uint8Array(change.payload),
    }))
    await new Promise<void>((resolve, reject) => {
      this.#waiting.push({ changes: copies, frees, bytes, resolve, reject })
      this.#writing ??= this.#write()
    })
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    await this.#writing
    await this.#thread.ask({ kind: 'close' })
  }

  /** Writes until nothing waits. Never throws. */
  async #write(): Promise<void> {
    while (this.#waiting.length > 0) {
      // The rest of this turn of the event loop may add to the transaction.
      await new Promise(setImmediate)
      const group = this.#waiting.splice(0)
      await this.#writeGroup(group)
      this.#waitingBytes -= group.reduce((sum, { bytes }) => sum + bytes, 0)
    }
    this.#writing = undefined
  }

  async #writeGroup(group: readonly Commit[], usesReserve = false): Promise<void> {
    const changes = group.flatMap((each) => each.changes)
    try {
      await this.#thread.ask({ kind: 'commit', changes, usesReserve })
      this.statistics.commits += group.length
      this.statistics.transactions += 1
      for (const { resolve } of group) resolve()
    } catch (error) {
      const isFull = error instanceof AgentError && error.code === 'RESOURCE_EXHAUSTED'
      const saved = isFull && !usesReserve ? group.filter(({ frees }) => frees) : []
      for (const commit of group) if (!saved.includes(commit)) commit.reject(error)
      if (saved.length > 0) await this.#writeGroup(saved, true)
    }
  }
}
