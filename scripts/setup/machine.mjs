import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** @typedef {{ nodeVersion: string, platform: string, arch: string, uid: number, path: string }} Machine */

/** @returns {Machine} the machine that this program runs on */
export function thisMachine() {
  const { platform, arch, env, versions } = process
  return { nodeVersion: versions.node, platform, arch, uid: process.getuid?.() ?? -1, path: env.PATH ?? '' }
}

/**
 * The first requirement that this machine does not meet, with the remedy; undefined when it meets all.
 * @param {Machine} machine
 * @returns {string | undefined}
 */
export function whatIsMissing({ nodeVersion, platform, arch, uid, path }) {
  if (Number.parseInt(nodeVersion, 10) < 20) {
    return `Node.js: version ${nodeVersion}, want 20 or newer: see https://nodejs.org`
  }
  if (platform !== 'linux' || arch !== 'x64') {
    return `machine: ${platform} on ${arch}, want Linux on x86-64`
  }
  if (uid !== 0) return 'user: not root, want root to install packages and build the guest: use sudo'
  const has = (/** @type {string} */ program) =>
    path.split(delimiter).some((folder) => existsSync(join(folder, program)))
  if (!has('apt-get')) return 'apt-get: not found, want Debian 12 or newer'
  if (!has('npm')) return 'npm: not found, want it installed: it comes with Node.js'
  return undefined
}
