import { readdir, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { findAgentFolder, loadNative } from '../../../os/native.ts'
import { startChild } from '../../../os/process/child.ts'
import { linuxStreams } from '../../../os/streams/linux-streams.ts'
import { connectToHolder, HolderClient, isAlive, startTimeOf } from './holder-client.ts'

/** How long the program may take to make the namespace and its socket. */
const START_TIMEOUT_MS = 10_000

/** Between two looks at a holder that was killed. */
const LOOK_MS = 10

/** Of what the program says of its failure. */
const MAX_ERROR_BYTES = 4096

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
  await runHolder(folder, program, cgroups)
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
    const startTime = startTimeOf(Number(pid))
    process.kill(Number(pid), 'SIGKILL')
    // Its command line is gone before its namespace has ended.
    while (isAlive(Number(pid), startTime)) await sleep(LOOK_MS)
  }
}

async function isHolder(pid: string, folder: string): Promise<boolean> {
  const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
  const [program = '', argument] = words.split('\0')
  return basename(program) === 'holder' && argument === folder
}

/** Runs the program until the holder is in the background. By vfork(2): a fork of this process copies its page tables. */
async function runHolder(folder: string, program: string, cgroups: readonly string[]): Promise<void> {
  const native = loadNative(findAgentFolder(import.meta.filename))
  const streams = linuxStreams(native)
  const words = streams.memoryFile('holder-error')
  try {
    const child = await startChild(native, streams, {
      ...{ argv: [program, folder, ...cgroups], name: undefined, cwd: '/' },
      // The holder and its children get nothing else of the daemon's environment.
      env: { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin' },
      ...{ stdio: [undefined, undefined, words], denied: [], hasTerminal: false },
    })
    const timer = setTimeout(child.kill, START_TIMEOUT_MS)
    const status = await child.exitCode
    clearTimeout(timer)
    if (status !== 0)
      throw startError(folder, status, String(streams.readAt(words, 0, MAX_ERROR_BYTES)).trim())
  } finally {
    streams.close(words)
  }
}

function startError(folder: string, status: number, text: string): AgentError {
  const message = `holder of ${folder}: ${text === '' ? `exit status ${status}` : text}`
  if (status === NO_NAMESPACE) return new AgentError('FAILED_PRECONDITION', message)
  if (text.endsWith(': ENOSPC')) return new AgentError('RESOURCE_EXHAUSTED', message)
  return new AgentError(status === HELD ? 'ALREADY_EXISTS' : 'UNAVAILABLE', message)
}
