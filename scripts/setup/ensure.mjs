import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { installPackages, missingPackages } from './debian.mjs'
import { installNodeModules, nodeModulesMatch } from './npm.mjs'
import { RUN_PACKAGES, TEST_PACKAGES } from './packages.mjs'
import { project } from './project.mjs'

/** @typedef {{ tests: boolean }} SetUpFor whether the packages of the tests are needed too */

/**
 * Installs the missing Debian and npm packages. Concurrent calls wait for each other.
 * @param {SetUpFor} scope
 * @returns {boolean} false when it failed; the reason was written to stderr
 */
export function ensureSetUp(scope) {
  if (isSetUp(scope)) return true
  mkdirSync(join(project, 'build'), { recursive: true })
  const script = join(project, 'scripts/setup.mjs')
  const again = [script, '--locked', ...(scope.tests ? ['--tests'] : [])]
  // flock(1) releases the lock even when its holder is killed.
  const result = spawnSync('flock', [join(project, 'build/setup.lock'), process.execPath, ...again], {
    stdio: ['ignore', 2, 2],
  })
  return result.status === 0
}

/**
 * Checks again under the lock, because another process may have installed the packages in the meantime.
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
