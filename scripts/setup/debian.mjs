import { readFileSync } from 'node:fs'
import { quietly } from './quietly.mjs'

/**
 * The packages of `wanted` that are not installed. Reads dpkg's database directly, because dpkg-query takes longer than
 * the rest of the check.
 * @param {readonly import('./packages.mjs').DebianPackage[]} wanted
 * @returns {readonly string[]}
 */
export function missingPackages(wanted) {
  const installed = installedPackages(readFileSync('/var/lib/dpkg/status', 'utf8'))
  return wanted.map((entry) => entry.name).filter((name) => !installed.has(name))
}

/**
 * @param {string} status the text of dpkg's status file
 * @returns {Set<string>}
 */
export function installedPackages(status) {
  const names = new Set()
  for (const match of status.matchAll(/^Package: (\S+)\nStatus: \S+ \S+ installed$/gm)) names.add(match[1])
  return names
}

/**
 * Throws with the last lines of apt's output.
 * @param {readonly string[]} names
 */
export function installPackages(names) {
  const apt = ['--yes', '--quiet', '-o', 'DPkg::Lock::Timeout=600', '-o', 'Dpkg::Use-Pty=0']
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  // A failed update is no error: the old lists may be enough, and install reports what is missing.
  const updated = quietly('apt-get', [...apt, 'update'], { env })
  const installed = quietly('apt-get', [...apt, 'install', '--no-install-recommends', ...names], { env })
  if (!installed.ok)
    throw new Error(`apt-get install failed:\n${updated.ok ? '' : updated.output}${installed.output}`)
}
