import { randomUUID } from 'node:crypto'
import { link, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { fileError } from '../snapshots/overlay-file.ts'

/** Who a saved machine has become. */
export interface SavedClaim {
  /** Of the saved machine. */
  readonly id: string
  /** Of the instance. */
  readonly folder: string
  readonly key: string
}

/** In the folder of a saved machine. */
export const CLAIM_FILE = 'resumed.json'

/** Throws FAILED_PRECONDITION when an instance was made of the saved machine already, unless it is this very one. */
export async function claimSaved(saved: string, claim: SavedClaim): Promise<void> {
  const path = join(saved, CLAIM_FILE)
  // It gets its name once it is whole: a rival never reads a part of it.
  const own = `${path}.${randomUUID()}`
  try {
    await writeFile(own, JSON.stringify(claim), { flag: 'wx', mode: 0o600, flush: true })
    await link(own, path)
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw fileError(path, error)
    const present = await readClaim(saved)
    if (present?.id === claim.id && present.folder === claim.folder) return
    throw resumedAlready(saved, present)
  } finally {
    await rm(own, { force: true })
  }
}

export function resumedAlready(saved: string, claim: SavedClaim | undefined): AgentError {
  const text = `${saved}: was resumed already${claim && `, as instance ${claim.key}`}: its guest must not run twice`
  return new AgentError('FAILED_PRECONDITION', text)
}

/** Undefined where no instance was made of it. */
export async function readClaim(saved: string): Promise<SavedClaim | undefined> {
  const text = await readFile(join(saved, CLAIM_FILE), 'utf8').catch((error) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  })
  if (text === undefined) return undefined
  try {
    const { id, folder, key } = JSON.parse(text)
    return { id: String(id), folder: String(folder), key: String(key) }
  } catch {
    return { id: '', folder: '', key: '' }
  }
}

export async function releaseSaved(saved: string, claim: Omit<SavedClaim, 'key'>): Promise<void> {
  const present = await readClaim(saved)
  if (present?.folder === claim.folder && present.id === claim.id)
    await rm(join(saved, CLAIM_FILE), { force: true })
}
