import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Address } from '../connection/address.ts'
import { fileFailure } from '../files/file-failure.ts'
import { entryNames, entryText, ownRunner, ownUid, readEntry } from './entry.ts'

export interface Registration {
  readonly name: string
  /** Throws UNAVAILABLE. */
  publish(address: Address): void
  /** Never throws. */
  remove(): void
}

/** The names for machines that were given none, in this order. */
const NAMES =
  'ant bee cat dog eel fox gnu hen ibis jay koi lynx mole newt owl pug quail ram swan toad vole wasp yak zebu'.split(
    ' ',
  )

/** Registers a machine, and removes ended ones. Throws ALREADY_EXISTS for a used name, UNAVAILABLE for the folder. */
export function registerMachine(folder: string, name: string | undefined): Registration {
  return orUnavailable(folder, () => {
    makeFolder(folder)
    removeEnded(folder)
    const taken = name === undefined ? takeFreeName(folder) : takeName(folder, name)
    return {
      name: taken,
      publish: (address) => orUnavailable(folder, () => publish(folder, taken, address)),
      remove: () => remove(folder, taken),
    }
  })
}

function orUnavailable<T>(folder: string, use: () => T): T {
  try {
    return use()
  } catch (error) {
    if (error instanceof AgentError) throw error
    throw new AgentError('UNAVAILABLE', `machines in ${fileFailure(folder, error)}`, { cause: error })
  }
}

function makeFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const { mode, uid } = statSync(folder)
  if (uid !== ownUid()) throw new Error(`${folder}: owned by user ${uid}`)
  if ((mode & 0o077) !== 0) throw new Error(`${folder}: mode ${(mode & 0o7777).toString(8)}, want 700`)
}

function takeFreeName(folder: string): string {
  for (let round = 1; ; round += 1) {
    const names = NAMES.map((name) => (round === 1 ? name : `${name}-${round}`))
    const taken = names.find((name) => take(folder, name))
    if (taken !== undefined) return taken
  }
}

function takeName(folder: string, name: string): string {
  while (!take(folder, name)) {
    const entry = readEntry(folder, name)
    const inUse = (reason: string) => new AgentError('ALREADY_EXISTS', `machine "${name}": ${reason}`)
    if (entry?.kind === 'runs') throw inUse(`runs already with pid ${entry.machine.pid}, want another --name`)
    if (entry?.kind === 'invalid')
      throw inUse(`${join(folder, name)}: ${entry.reason}, want it removed or another --name`)
    // The machine of that name has just ended.
    removeEnded(folder)
  }
  return name
}

/** Creates a complete entry atomically; false when the file exists. */
function take(folder: string, name: string): boolean {
  const draft = writeDraft(folder, undefined)
  try {
    return link(folder, draft, name)
  } finally {
    rmSync(join(folder, draft))
  }
}

function publish(folder: string, name: string, address: Address): void {
  if (!isOwn(folder, name)) throw new Error(`${folder}: the entry ${name} was removed`)
  renameSync(join(folder, writeDraft(folder, address)), join(folder, name))
}

function remove(folder: string, name: string): void {
  try {
    if (isOwn(folder, name)) rmSync(join(folder, name), { force: true })
  } catch {
    // The folder is no longer writable. Readers ignore the entry once this process has ended.
  }
}

function isOwn(folder: string, name: string): boolean {
  const entry = readEntry(folder, name)
  return entry?.kind === 'runs' && entry.machine.pid === process.pid
}

/** Writes this process's entry under a name that readers ignore, and returns the name. */
function writeDraft(folder: string, address: Address | undefined): string {
  const name = `.${process.pid}`
  rmSync(join(folder, name), { force: true })
  writeFileSync(join(folder, name), entryText({ ...ownRunner(), address }), { mode: 0o600, flag: 'wx' })
  return name
}

function removeEnded(folder: string): void {
  for (const name of entryNames(folder))
    if (readEntry(folder, name)?.kind === 'ended') removeEndedEntry(folder, name)
  for (const file of readdirSync(folder)) {
    const pid = /^\.(\d+)(-ended)?$/.exec(file)?.[1]
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) rmSync(join(folder, file), { force: true })
  }
}

/** Removes the entry of an ended machine, unless another run has just replaced it. */
function removeEndedEntry(folder: string, name: string): void {
  const aside = `.${process.pid}-ended`
  const moved = unlessErrno('ENOENT', () => renameSync(join(folder, name), join(folder, aside)))
  // Another run has removed it.
  if (!moved) return
  // Restore the entry of a run that has just taken the name. If a third run is faster, the second's `publish` fails.
  if (readEntry(folder, aside)?.kind === 'runs') link(folder, aside, name)
  rmSync(join(folder, aside))
}

function link(folder: string, file: string, name: string): boolean {
  return unlessErrno('EEXIST', () => linkSync(join(folder, file), join(folder, name)))
}

function unlessErrno(errno: string, use: () => void): boolean {
  try {
    use()
    return true
  } catch (error) {
    if (errnoOf(error) === errno) return false
    throw error
  }
}
