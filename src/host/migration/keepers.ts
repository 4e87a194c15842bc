import { mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Holder } from '../instance/holder/holder.ts'
import type { Holders } from '../instance/machine/steps.ts'

/** The processes that hold the memory of saved machines of which there are clones, one for each. They outlive the daemon. */
export interface Keepers {
  /**
   * The socket at which the memory in the file at `path`, which was checked, is given sealed. `id` names the saved machine. Its
   * keeper is in use until `release`.
   */
  keep(id: string, path: string): Promise<string>
  release(id: string): void
  /** Ends the keeper of a saved machine unless it is in use, or `isUsed` by clones. Never throws. */
  endUnused(id: string, isUsed: () => boolean): Promise<void>
  /** Ends the keeper of a saved machine, if there is one. Clones that run go on. */
  end(id: string): Promise<void>
  /** Ends the keepers that there are but for those of the saved machines with the ids. */
  endOthers(ids: () => Promise<ReadonlySet<string>>): Promise<void>
}

/** In the state folder; each keeper has a folder by the id of its saved machine. */
const KEEPERS = 'keepers'

export function openKeepers(parts: {
  readonly stateFolder: string
  readonly holders: Holders
  readonly log: Logger
}): Keepers {
  const { holders, log, stateFolder } = parts
  const root = join(stateFolder, KEEPERS)
  /** What is done with each one, one thing after the other. */
  const last = new Map<string, Promise<unknown>>()
  /** How many clones are being made with each one. */
  const uses = new Map<string, number>()

  function use(id: string, more: 1 | -1): void {
    const count = (uses.get(id) ?? 0) + more
    if (count > 0) uses.set(id, count)
    else uses.delete(id)
  }

  function inTurn<Result>(id: string, work: () => Promise<Result>): Promise<Result> {
    const next = (last.get(id) ?? Promise.resolve()).then(work, work)
    const forget = () => {
      if (last.get(id) === next) last.delete(id)
    }
    last.set(id, next)
    next.then(forget, forget)
    return next
  }

  /** A keeper that does not answer has to go. */
  async function found(folder: string): Promise<Holder | undefined> {
    return await holders.find(folder).catch(async (error) => {
      log.warn('keeper killed', { folder, error: messageOf(error) })
      await holders.kill(folder)
      return undefined
    })
  }

  async function keep(id: string, path: string): Promise<string> {
    const folder = join(root, id)
    const known = await found(folder)
    // An earlier daemon may have died before its keeper had the memory.
    const isReady = await known?.hasSealedMemory().catch((error) => {
      log.warn('keeper made again', { folder, error: messageOf(error) })
      return false
    })
    if (isReady) known?.disconnect()
    else await known?.end()
    if (isReady) return join(folder, 'holder.sock')
    await mkdir(folder, { mode: 0o700, recursive: true })
    const holder = await holders.start(folder, [])
    try {
      await holder.memory(path)
    } catch (error) {
      await holder.end()
      await rm(folder, { recursive: true, force: true })
      throw error
    } finally {
      holder.disconnect()
    }
    return join(folder, 'holder.sock')
  }

  async function end(id: string): Promise<void> {
    const folder = join(root, id)
    const holder = await found(folder)
    await holder?.end()
    await rm(folder, { recursive: true, force: true })
  }

  return {
    keep: async (id, path) => {
      use(id, 1)
      return await inTurn(id, () => keep(id, path)).catch((error) => {
        use(id, -1)
        throw error
      })
    },
    release: (id) => use(id, -1),
    endUnused: (id, isUsed) =>
      inTurn(id, async () => {
        if (!uses.has(id) && !isUsed()) await end(id)
      }).catch((error) => log.warn('keeper not ended', { id, error: messageOf(error) })),
    end: (id) => inTurn(id, () => end(id)),
    endOthers: async (ids) => {
      // Before the saved machines are looked at, of which there may soon be more.
      const names = await readdir(root).catch(() => [])
      const known = names.length === 0 ? new Set() : await ids()
      await Promise.all(names.filter((id) => !known.has(id)).map((id) => inTurn(id, () => end(id))))
    },
  }
}
