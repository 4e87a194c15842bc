import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** @typedef {{ nodeVersion: string, platform: string, arch: string, uid: number, path: string }} Machine */

/** @returns {Machine} the one this runs on */
export function thisMachine() {
  const { platform, arch, env, versions } = process
  return { nodeVersion: versions.node, platform, arch, uid: process.getuid?.() ?? -1, path: env.PATH ?? '' }
}

/**
 * What this machine lacks to be used, as one sentence with the remedy; undefined when nothing.
 * @param {Machine} machine
 * @returns {string | undefined}
 */
export function whatIsMissing({ nodeVersion, platform, arch, uid, path }) {
  if (Number.parseInt(nodeVersion, 10) < 20) {
    return `this is Node.js ${nodeVersion}: install version 20 or newer, see https://nodejs.org`
  }
  if (platform !== 'linux' || arch !== 'x64') {
    return `this machine is ${platform} on ${arch}: use Linux on x86-64`
  }
  if (uid !== 0) return 'this needs root to install packages and to build the guest: run it again with sudo'
  const has = (/** @type {string} */ program) =>
    path.split(delimiter).some((folder) => existsSync(join(folder, program)))
  if (!has('apt-get')) return 'there is no apt-get here: use Debian 12 or newer'
  if (!has('npm')) return 'there is no npm here: install npm, which comes with Node.js'
  return undefined
}
