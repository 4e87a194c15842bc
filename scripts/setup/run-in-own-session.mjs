import { spawn } from 'node:child_process'
import { constants } from 'node:os'

/** The forwarded signals. The kernel sends SIGWINCH only to the session of the terminal. */
const FORWARDED = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGWINCH', 'SIGCONT'])

/**
 * Runs a program with this process's stdio, in a session of its own: a signal to this process group reaches the program
 * once, through this process. It stops and continues with this process, and dies with it (PR_SET_PDEATHSIG). It can use
 * the terminal, because job control applies only to members of the terminal's session.
 * @param {readonly string[]} argv
 * @returns {Promise<number>} its exit status; 128 + N when signal N ended it
 */
export async function runInOwnSession(argv) {
  /** @type {import('node:child_process').ChildProcess | undefined} */
  let child
  // Handlers come before the program starts: without them a signal would end this process.
  for (const signal of FORWARDED) process.on(signal, () => child?.kill(signal))
  process.on('SIGTSTP', () => {
    child?.kill('SIGSTOP')
    process.kill(process.pid, 'SIGSTOP')
  })
  const started = spawn('setpriv', ['--pdeathsig', 'KILL', '--', ...argv], {
    detached: true,
    stdio: 'inherit',
  })
  child = started
  return await new Promise((resolve, reject) => {
    started.once('error', reject)
    started.once('exit', (status, signal) => {
      resolve(status ?? 128 + (signal === null ? 0 : constants.signals[signal]))
    })
  })
}
