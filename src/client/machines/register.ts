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

/** The entry of a machine that this process runs; see {@link registerMachine}. */
export interface Registration {
  readonly name: string
  /** Tells where the agent listens, once that has answered. Throws UNAVAILABLE. */
  publish(address: Address): void
  /** Removes the entry. Never throws. */
  remove(): void
}

/** The names of machines that were given none, in this order; a name is free again when its machine has ended. */
const NAMES =
  'ant bee cat dog eel fox gnu hen ibis jay koi lynx mole newt owl pug quail ram swan toad vole wasp yak zebu'.split(
    ' ',
  )

/**
 * Takes a name for the machine that this process is about to run, and removes the entries of machines that have ended.
 * Throws ALREADY_EXISTS when the name is in use, and UNAVAILABLE when the folder cannot be used.
 */
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

/** Makes the entry of a name, complete from its first moment, unless there is a file of that name. */
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
    // The folder cannot be written any more. The entry is passed over once this process has ended.
  }
}

function isOwn(folder: string, name: string): boolean {
  const entry = readEntry(folder, name)
  return entry?.kind === 'runs' && entry.machine.pid === process.pid
}

/** Writes the entry of this process to a file that no reader takes for one, and returns its name. */
function writeDraft(folder: string, address: Address | undefined): string {
  const name = `.${process.pid}`
  rmSync(join(folder, name), { force: true })
  writeFileSync(join(folder, name), entryText({ ...ownRunner(), address }), { mode: 0o600, flag: 'wx' })
  return name
}

/** Removes what killed runs have left. */
function removeEnded(folder: string): void {
  for (const name of entryNames(folder))
    if (readEntry(folder, name)?.kind === 'ended') removeEndedEntry(folder, name)
  for (const file of readdirSync(folder)) {
    const pid = /^\.(\d+)(-ended)?$/.exec(file)?.[1]
    if (pid !== undefined && !existsSync(`/proc/${pid}`)) rmSync(join(folder, file), { force: true })
  }
}

/** Removes the entry of a machine that has ended, unless another run has just replaced it. */
function removeEndedEntry(folder: string, name: string): void {
  const aside = `.${process.pid}-ended`
  const moved = unlessErrno('ENOENT', () => renameSync(join(folder, name), join(folder, aside)))
  // Another run has removed it.
  if (!moved) return
  // Unless a third run has taken the name at this moment; the second is told when it publishes.
  if (readEntry(folder, aside)?.kind === 'runs') link(folder, aside, name)
  rmSync(join(folder, aside))
}

/** Gives a file a second name, unless there is a file of that name. */
function link(folder: string, file: string, name: string): boolean {
  return unlessErrno('EEXIST', () => linkSync(join(folder, file), join(folder, name)))
}

/** Whether `use` succeeds; false when it fails with that errno. */
function unlessErrno(errno: string, use: () => void): boolean {
  try {
    use()
    return true
  } catch (error) {
    if (errnoOf(error) === errno) return false
    throw error
  }
}
