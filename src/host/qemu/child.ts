import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import type { Duplex, Readable } from 'node:stream'
import { AgentError, messageOf } from '../../base/errors.ts'
import { ConsoleTail } from './console-tail.ts'

export interface ChildExit {
  readonly code: number | undefined
  readonly signal: NodeJS.Signals | undefined
}

export interface Child {
  readonly name: string
  readonly pid: number
  readonly stdout: Readable
  readonly stderr: Readable
  /** The runner's end of the socket that is descriptor 3 in the program. */
  readonly channel: Duplex
  /** Resolves when the program has ended and its output has been read; never rejects. */
  readonly exited: Promise<ChildExit>
  /** Sends SIGKILL and waits for the end. Does nothing when the program has ended. */
  kill(): Promise<void>
}

/**
 * Starts a program in its own session, so that Ctrl-C reaches only the runner. The kernel kills the program when the
 * runner dies (PR_SET_PDEATHSIG, which setpriv(1) sets and which stays set across exec). Rejects with UNAVAILABLE when
 * setpriv cannot be started.
 */
export async function startChild(name: string, argv: readonly [string, ...string[]]): Promise<Child> {
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', ...argv], {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  })
  const started = Promise.withResolvers<void>()
  child.once('spawn', started.resolve)
  child.once('error', started.reject)
  try {
    await started.promise
  } catch (error) {
    throw new AgentError('UNAVAILABLE', `start ${name} through setpriv: ${messageOf(error)}`, {
      cause: error,
    })
  }
  return wrap(name, child)
}

/** How a program ended, as the predicate of a sentence: `exited with status 1`, `was ended by SIGKILL`. */
export function describeExit(exit: ChildExit): string {
  return exit.signal === undefined ? `exited with status ${exit.code}` : `was ended by ${exit.signal}`
}

function wrap(name: string, child: ChildProcess): Child {
  const { pid, stdout, stderr } = child
  const channel = child.stdio[3]
  if (pid === undefined || stdout === null || stderr === null || !isDuplex(channel)) {
    throw new AgentError('INTERNAL', `${name} was started without its pipes`)
  }
  const exited = new Promise<ChildExit>((resolve) => {
    // `close`, not `exit`: by then the program's last output has arrived.
    child.once('close', (code, signal) => resolve({ code: code ?? undefined, signal: signal ?? undefined }))
  })
  return {
    name,
    pid,
    stdout,
    stderr,
    channel,
    exited,
    kill: async () => {
      child.kill('SIGKILL')
      await exited
    },
  }
}

function isDuplex(stream: unknown): stream is Duplex {
  return typeof stream === 'object' && stream !== null && 'read' in stream && 'write' in stream
}

const START_TIMEOUT_MS = 10_000

/**
 * Starts a program that serves a unix socket at `path`, and waits until that socket exists. When the program ends or
 * takes too long, this kills it and rejects with UNAVAILABLE and the program's own words.
 */
export async function startSocketServer(
  name: string,
  argv: readonly [string, ...string[]],
  path: string,
): Promise<Child> {
  const daemon = await startChild(name, argv)
  const words = new ConsoleTail(daemon.stderr)
  daemon.stdout.resume()
  try {
    await socketExists(path, daemon)
    return daemon
  } catch (error) {
    await daemon.kill()
    const said = words.lines.length > 0 ? `: ${words.lines.join(' ')}` : ''
    throw new AgentError('UNAVAILABLE', `${name} made no socket: ${messageOf(error)}${said}`)
  }
}

/** Waits until the socket at `path` exists. Rejects when the daemon ends first or takes too long. */
async function socketExists(path: string, daemon: Child): Promise<void> {
  const appeared = Promise.withResolvers<void>()
  const look = () => existsSync(path) && appeared.resolve()
  const watcher = watch(dirname(path), look)
  const timer = setTimeout(() => appeared.reject(new Error('it took too long')), START_TIMEOUT_MS)
  void daemon.exited.then((exit) => appeared.reject(new Error(`it ${describeExit(exit)}`)))
  // A socket made before the watch began causes no event.
  look()
  try {
    await appeared.promise
  } finally {
    clearTimeout(timer)
    watcher.close()
  }
}
