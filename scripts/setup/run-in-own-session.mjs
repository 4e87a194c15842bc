import { spawn } from 'node:child_process'
import { constants } from 'node:os'

/** The signals that are passed on; SIGWINCH because the kernel sends it only to the session of the terminal. */
const FORWARDED = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGWINCH', 'SIGCONT'])

/**
 * Runs a program with this process's stdio, as close to exec(2) as a child process allows. The child has a session of its
 * own, so that a signal to this process group reaches it once, through this process. It stops and continues with this
 * process, and the kernel kills it when this process dies (PR_SET_PDEATHSIG, set by setpriv(1)). It can use the terminal,
 * because job control applies only to members of the terminal's session.
 * @param {readonly string[]} argv
 * @returns {Promise<number>} its exit status; 128 + N when signal N ended it
 */
export async function runInOwnSession(argv) {
  /** @type {import('node:child_process').ChildProcess | undefined} */
  let child
  // Before the program starts: without handlers a signal would end this process, and the program may be fast.
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
      // Without a status there is a signal.
      resolve(status ?? 128 + (signal === null ? 0 : constants.signals[signal]))
    })
  })
}
