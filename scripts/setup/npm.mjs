import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { quietly } from './quietly.mjs'

/** @typedef {{ version?: string, integrity?: string, optional?: boolean }} LockEntry */

/**
 * Whether node_modules holds what package-lock.json says. npm writes its own list into node_modules as the last
 * step of an installation, so one that was interrupted never matches.
 * @param {string} project
 * @returns {boolean}
 */
export function nodeModulesMatch(project) {
  const wanted = lockEntries(join(project, 'package-lock.json'))
  const present = lockEntries(join(project, 'node_modules/.package-lock.json'))
  return wanted !== undefined && present !== undefined && holdsAll(wanted, present)
}

/**
 * Whether every package of `wanted` is in `present` as it should be. Optional packages may be absent: most are
 * binaries for other platforms.
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
 * `npm ci`. Throws with the end of npm's output. It does not outlive this process, whose end gives the lock of the
 * set-up back: the next npm would meet it in node_modules.
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
    // Missing or half-written: either way there is nothing to rely on.
    return undefined
  }
}
