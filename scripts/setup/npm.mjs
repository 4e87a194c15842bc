import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { quietly } from './quietly.mjs'

/** @typedef {{ version?: string, integrity?: string, optional?: boolean }} LockEntry */

/**
 * Compares node_modules with package-lock.json. npm writes its own list there last, so an interrupted installation
 * never matches.
 * @param {string} project
 * @returns {boolean}
 */
export function nodeModulesMatch(project) {
  const wanted = lockEntries(join(project, 'package-lock.json'))
  const present = lockEntries(join(project, 'node_modules/.package-lock.json'))
  return wanted !== undefined && present !== undefined && holdsAll(wanted, present)
}

/**
 * Compares versions and contents. Optional packages may be absent: most are binaries for other platforms.
 * @param {Readonly<Record<string, LockEntry>>} wanted
 * @param {Readonly<Record<string, LockEntry>>} present
 */
export function holdsAll(wanted, present) {
  return Object.entries(wanted).every(([path, entry]) => {
    if (path === '') return true
    const found = present[path]
    if (found === undefined) return entry.optional === true
    return found.version === entry.version && found.integrity === entry.integrity
  })
}

/**
 * Runs `npm ci`. Throws with the last lines of npm's output. The kernel kills npm when this process dies, because that
 * releases the lock and the next npm must not find this one still writing.
 * @param {string} project
 */
export function installNodeModules(project) {
  const result = quietly('setpriv', ['--pdeathsig', 'KILL', '--', 'npm', 'ci', '--no-audit', '--no-fund'], {
    cwd: project,
  })
  if (!result.ok) throw new Error(`npm ci failed:\n${result.output}`)
}

/**
 * @param {string} file
 * @returns {Readonly<Record<string, LockEntry>> | undefined} undefined when there is no such file
 */
function lockEntries(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8')).packages
  } catch {
    // A missing or incomplete file means that nothing is known to be installed.
    return undefined
  }
}
