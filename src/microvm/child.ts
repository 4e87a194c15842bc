import { type ChildProcess, spawn } from 'node:child_process'
import type { Duplex, Readable } from 'node:stream'
import { AgentError } from '../base/errors.ts'

/** How a program ended. */
export interface ChildExit {
  readonly code: number | undefined
  readonly signal: NodeJS.Signals | undefined
}

/** A program the runner started and ends again. */
export interface Child {
  readonly name: string
  readonly pid: number
  readonly stdout: Readable
  readonly stderr: Readable
  /** Our end of the socket that is descriptor 3 in the program. */
  readonly channel: Duplex
  /** Resolves when it has ended; never rejects. */
  readonly exited: Promise<ChildExit>
  /** SIGKILL, then waits for the end. Fine when it has ended already. */
  kill(): Promise<void>
}

/**
 * Starts a program in a session of its own, so that a Ctrl-C is the runner's alone, and so that the kernel kills it
 * when the runner dies by whatever means (PR_SET_PDEATHSIG, set by setpriv(1), which stays set across exec).
 * Rejects with UNAVAILABLE when there is no such program.
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
    throw new AgentError('UNAVAILABLE', `cannot start ${name} through setpriv`, { cause: error })
  }
  return wrap(name, child)
}

/** `exited` as a sentence's end: `exited with status 1`, `was ended by SIGKILL`. */
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
    // `close`, not `exit`: what it wrote last has arrived by then.
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
