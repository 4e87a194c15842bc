import { closeSync, openSync, readFileSync, statSync } from 'node:fs'
// biome-ignore lint/style/noRestrictedImports: nothing is written
import { DatabaseSync } from 'node:sqlite'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { fromNodeError } from '../../../os/errors.ts'
import { isBusy, sqliteFailure } from './sqlite-errors.ts'

/**
 * Locks a state folder until `release` or the end of the process, or throws FAILED_PRECONDITION when another daemon has it.
 * The lock is SQLite's on an empty file of its own: the kernel drops it with the process, and no child inherits it.
 */
export function lockFolder(folder: string): { readonly release: () => void } {
  const path = `${folder}/registry.lock`
  makeFile(path)
  const database = new DatabaseSync(path)
  try {
    // Nothing is written, so no journal is needed, which would be a file.
    database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
  } catch (error) {
    database.close()
    if (!isBusy(error)) throw sqliteFailure(path, error)
    const pid = lockHolder(path)
    const holder = pid === undefined ? 'another daemon' : `the daemon with pid ${pid}`
    throw new AgentError('FAILED_PRECONDITION', `${folder}: used by ${holder}, want that stopped first`)
  }
  return { release: () => database.close() }
}

/**
 * Makes the file for this user only, unless it exists. Never opens an existing one: POSIX drops all locks that a process
 * has on a file when it closes any descriptor of it.
 */
export function makeFile(path: string): void {
  try {
    closeSync(openSync(path, 'ax', 0o600))
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw fromNodeError('open', path, error)
  }
}

/** The pid from a line of /proc/locks: `1: POSIX  ADVISORY  WRITE 4242 fe:00:1234 1073741826 1073742335`. */
function lockHolder(path: string): number | undefined {
  const { dev, ino } = statSync(path, { bigint: true })
  const major = ((dev >> 8n) & 0xfffn).toString(16).padStart(2, '0')
  const minor = ((dev & 0xffn) | ((dev >> 12n) & 0xfff00n)).toString(16).padStart(2, '0')
  const place = `${major}:${minor}:${ino}`
  const line = readFileSync('/proc/locks', 'utf8')
    .split('\n')
    .map((each) => each.split(/\s+/))
    .find((words) => words[3] === 'WRITE' && words[5] === place)
  const pid = Number(line?.[4])
  return pid > 0 ? pid : undefined
}
