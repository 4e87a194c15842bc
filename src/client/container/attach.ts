import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { AgentError } from '../../base/errors.ts'
import { Detached } from '../terminal/detach-keys.ts'
import type { Interruptions } from '../terminal/interruptions.ts'
import { onResize, rawKeys, type TerminalStreams, terminalSize } from '../terminal/terminal.ts'
import type { Agent } from './container-session.ts'
import { copyInput, copyOutput, OutputClosed, type ProcessKey } from './stdio.ts'

export interface Stdio {
  readonly stdin: Readable & TerminalStreams['stdin']
  readonly stdout: Writable & TerminalStreams['stdout']
  readonly stderr: Writable
}

export interface Attachment {
  readonly agent: Agent
  readonly process: ProcessKey
  readonly stdio: Stdio
  readonly tty: boolean
  /** Whether to copy the tool's stdin; otherwise a process without a terminal reads EOF at once. */
  readonly passInput: boolean
  /** The keys that detach the tool from the process; used only with a terminal. */
  readonly detachKeys?: Buffer | undefined
  readonly interruptions: Interruptions
  /** Fires when the guest is gone or the run was interrupted. */
  readonly signal: AbortSignal
}

/** An attachment whose process gets no signals of the tool. */
export type Joined = Omit<Attachment, 'interruptions'>

const BROKEN_PIPE_STATUS = 128 + constants.signals.SIGPIPE

/** Returns a process's exit status once its output is written. Throws {@link Detached} at the detach keys. */
export async function attach(attachment: Attachment): Promise<number> {
  const undo = forwardSignals(attachment)
  try {
    return await withInput(attachment, { closesInput: true }, (signal) => outputAndStatus(attachment, signal))
  } finally {
    undo()
  }
}

/**
 * Copies the outputs of another client's process until they end, and leaves the process to that client. Throws
 * {@link Detached} at the detach keys, {@link OutputClosed} when the tool's output has no reader.
 */
export async function joinProcess(joined: Joined): Promise<void> {
  await withInput(joined, { closesInput: false }, (signal) => copyOutputs(joined, signal))
}

async function withInput<T>(
  joined: Joined,
  { closesInput }: { readonly closesInput: boolean },
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController()
  const detached = new AbortController()
  const restore = followTerminal(joined)
  const input = copyStdin(joined, closesInput, AbortSignal.any([joined.signal, over.signal]))
  // The `finally` block awaits it; the detach keys also end `work`.
  input.catch((error: unknown) => {
    if (error instanceof Detached) detached.abort(error)
  })
  try {
    return await work(AbortSignal.any([joined.signal, detached.signal]))
  } finally {
    restore()
    over.abort()
    await input
  }
}

async function copyOutputs({ agent, process, stdio, tty }: Joined, signal: AbortSignal): Promise<void> {
  const outputs = [copyOutput(agent.readStdout, process, stdio.stdout, signal)]
  // A terminal has one stream.
  if (!tty) outputs.push(copyOutput(agent.readStderr, process, stdio.stderr, signal))
  // `Promise.all` reports the first failure; the second has the same cause.
  for (const output of outputs) output.catch(() => {})
  await Promise.all(outputs)
}

/** Copies the outputs before WaitProcess, because WaitProcess closes the streams. */
async function outputAndStatus(attachment: Attachment, signal: AbortSignal): Promise<number> {
  const { agent, process } = attachment
  try {
    await copyOutputs(attachment, signal)
  } catch (error) {
    if (!(error instanceof OutputClosed)) throw error
    await agent.signalProcess({ ...process, signal: constants.signals.SIGKILL }, { signal })
    return BROKEN_PIPE_STATUS
  }
  const { status } = await agent.waitProcess(process, { signal })
  return status
}

async function copyStdin(joined: Joined, closesInput: boolean, signal: AbortSignal): Promise<void> {
  const { agent, detachKeys, passInput, process, stdio, tty } = joined
  try {
    if (passInput) await copyInput(agent, process, stdio.stdin, signal, tty ? detachKeys : undefined)
    // A terminal without input stays open, because closing it would hang it up.
    if (closesInput && (passInput || !tty)) await agent.closeStdin(process, { signal })
  } catch (error) {
    // The process may have closed its stdin or ended. A lost connection also fails the outputs.
    if (!signal.aborted && !(error instanceof AgentError)) throw error
  }
}

/** Sets the tool's terminal to raw mode and forwards its size, until the returned function is called. */
function followTerminal({ agent, passInput, process, signal, stdio, tty }: Joined): () => void {
  if (!tty) return () => {}
  const resize = ({ rows, columns }: { readonly rows: number; readonly columns: number }) => {
    const request = { ...process, row: rows, column: columns }
    // The process may end before it gets the new size.
    agent.ttyWinResize(request, { signal }).catch(() => {})
  }
  const undo = [onResize(stdio, resize), passInput ? rawKeys(stdio) : () => {}]
  // The window may have changed since the process was created.
  resize(terminalSize(stdio))
  return () => {
    for (const step of undo) step()
  }
}

/** Forwards the next signal to a process without a terminal, until the returned function is called. */
function forwardSignals({ agent, interruptions, process, signal, tty }: Attachment): () => void {
  if (tty) return () => {}
  interruptions.forwardNext((signalNumber) => {
    const request = { ...process, signal: signalNumber }
    // The process may have just ended.
    agent.signalProcess(request, { signal }).catch(() => {})
  })
  return () => interruptions.forwardNext(undefined)
}
