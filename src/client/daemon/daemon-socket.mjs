import { homedir } from 'node:os'
import { join } from 'node:path'

/** @typedef {Readonly<Record<string, string | undefined>>} Environment */

/**
 * /var/lib/microvm for root, microvm in $XDG_STATE_HOME or ~/.local/state for others. Plain JavaScript, because
 * `./microvm doctor` runs before anything is set up.
 * @param {Environment} env
 * @returns {string}
 */
export function defaultStateFolder({ XDG_STATE_HOME = '' }) {
  if (process.geteuid?.() === 0) return '/var/lib/microvm'
  return join(XDG_STATE_HOME === '' ? join(homedir(), '.local/state') : XDG_STATE_HOME, 'microvm')
}

/**
 * The socket of the daemon: `given`, that of the environment, or the administrator's in the default state folder.
 * @param {string | undefined} given
 * @param {Environment} env
 * @returns {string}
 */
export function daemonSocket(given, env) {
  const { MICROVM_SOCKET = '' } = env
  return given ?? (MICROVM_SOCKET === '' ? join(defaultStateFolder(env), 'admin.sock') : MICROVM_SOCKET)
}
