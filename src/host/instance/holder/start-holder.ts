import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import { connectToHolder, HolderClient } from './holder-client.ts'

/** How long the program may take to make the namespace and its socket. */
const START_TIMEOUT_MS = 10_000

/** Between two looks at a holder that was killed. */
const LOOK_MS = 10

/** Exit statuses of `native/holder`. */
const NO_NAMESPACE = 3
const HELD = 4

/**
 * Starts a holder for an instance's folder, in the cgroups with these folders. `program` is the built `native/holder`.
 * Rejects with FAILED_PRECONDITION and what is missing when no PID namespace can be made, and with ALREADY_EXISTS when the
 * folder has a holder.
 */
export async function startHolder(
  folder: string,
  program: string,
  cgroups: readonly string[] = [],
): Promise<HolderClient> {
  try {
    // The holder and its children get nothing else of the daemon's environment.
    const env = { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin' }
    const limits = { timeout: START_TIMEOUT_MS, killSignal: 'SIGKILL' } as const
    await promisify(execFile)(program, [folder, ...cgroups], { env, ...limits })
  } catch (error) {
    throw startError(folder, error)
  }
  const holder = await findHolder(folder)
  if (holder === undefined) throw new AgentError('UNAVAILABLE', `holder of ${folder}: ended at once`)
  return holder
}

/**
 * The running holder of a folder, or undefined when there is none. Rejects with UNAVAILABLE when one does not answer,
 * and with FAILED_PRECONDITION when it has another version.
 */
export async function findHolder(folder: string): Promise<HolderClient | undefined> {
  const path = join(folder, 'holder.sock')
  try {
    return await HolderClient.open(await connectToHolder(path), path)
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'ENOENT' || errno === 'ECONNREFUSED') return undefined
    throw error
  }
}

/** Kills the holder of a folder, which does not answer, by its command line. Resolves once all in its namespace has ended. */
export async function killHolder(folder: string): Promise<void> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    if (!(await isHolder(pid, folder))) continue
    process.kill(Number(pid), 'SIGKILL')
    // A zombie has no command line.
    while (await isHolder(pid, folder)) await sleep(LOOK_MS)
  }
}

async function isHolder(pid: string, folder: string): Promise<boolean> {
  const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  const [program = '', argument] = words.split('\0')
  return basename(program) === 'holder' && argument === folder
}

function startError(folder: string, error: unknown): AgentError {
  const isExit = error instanceof Error && 'stderr' in error && 'code' in error
  const text = isExit ? String(error.stderr).trim() : ''
  const message = `holder of ${folder}: ${text === '' ? messageOf(error) : text}`
  if (isExit && error.code === NO_NAMESPACE) return new AgentError('FAILED_PRECONDITION', message)
  if (isExit && error.code === HELD) return new AgentError('ALREADY_EXISTS', message)
  return new AgentError('UNAVAILABLE', message, { cause: error })
}
