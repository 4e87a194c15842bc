import { spawn } from 'node:child_process'
import { constants } from 'node:os'

/** What is passed on. SIGWINCH, because the kernel tells only the terminal's own session of a new size. */
const FORWARDED = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGWINCH', 'SIGCONT'])

/**
 * Runs a program on our stdio in this process's place, as far as that goes without exec: a session of its own keeps
 * signals to our process group away from it, so that each one reaches it once, through us; it is stopped and goes on
 * with us; and the kernel kills it when we die by whatever means (PR_SET_PDEATHSIG, set by setpriv(1)). A terminal stays
 * usable: the kernel holds only members of its own session to job control.
 * @param {readonly string[]} argv
 * @returns {Promise<number>} its exit status; 128 + N when signal N ended it
 */
export async function runInOwnSession(argv) {
  /** @type {import('node:child_process').ChildProcess | undefined} */
  let child
  // Before the program starts: until there are handlers a signal would end us, and the program may be quick.
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
