import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { installPackages, missingPackages } from './debian.mjs'
import { installNodeModules, nodeModulesMatch } from './npm.mjs'
import { RUN_PACKAGES, TEST_PACKAGES } from './packages.mjs'
import { project } from './project.mjs'

/** @typedef {{ tests: boolean }} SetUpFor what is needed to run the tests besides */

/**
 * Installs the Debian and npm packages that are missing. With nothing missing this only looks, which takes
 * milliseconds and no network. Two at the same time wait for each other.
 * @param {SetUpFor} scope
 * @returns {boolean} false when it failed; the reason was written to stderr
 */
export function ensureSetUp(scope) {
  if (isSetUp(scope)) return true
  mkdirSync(join(project, 'build'), { recursive: true })
  const script = join(project, 'scripts/setup.mjs')
  const again = [script, '--locked', ...(scope.tests ? ['--tests'] : [])]
  // flock(1) gives the lock back whatever happens to the process that holds it.
  const result = spawnSync('flock', [join(project, 'build/setup.lock'), process.execPath, ...again], {
    stdio: ['ignore', 2, 2],
  })
  return result.status === 0
}

/**
 * The work itself; the caller holds the lock. Looks again, because another process may have done it meanwhile.
 * @param {SetUpFor} scope
 * @param {(line: string) => void} progress
 */
export function setUp(scope, progress) {
  const packages = missingPackages(wantedPackages(scope))
  if (packages.length > 0) {
    progress(`installing Debian packages: ${packages.join(' ')}`)
    installPackages(packages)
  }
  if (!nodeModulesMatch(project)) {
    progress('installing npm packages')
    installNodeModules(project)
  }
}

/** @param {SetUpFor} scope */
function isSetUp(scope) {
  return missingPackages(wantedPackages(scope)).length === 0 && nodeModulesMatch(project)
}

/** @param {SetUpFor} scope */
function wantedPackages(scope) {
  return scope.tests ? [...RUN_PACKAGES, ...TEST_PACKAGES] : RUN_PACKAGES
}
