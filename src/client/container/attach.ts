import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { AgentError } from '../../base/errors.ts'
import { Detached } from '../terminal/detach-keys.ts'
import type { Interruptions } from '../terminal/interruptions.ts'
import { onResize, rawKeys, type TerminalStreams, terminalSize } from '../terminal/terminal.ts'
import type { Agent } from './container-session.ts'
import { copyInput, copyOutput, OutputClosed, type ProcessKey } from './stdio.ts'

/** The tool's own stdio. */
export interface Stdio {
  readonly stdin: Readable & TerminalStreams['stdin']
  readonly stdout: Writable & TerminalStreams['stdout']
  readonly stderr: Writable
}

/** A process of a container, with the tool's stdio as its own. */
export interface Attachment {
  readonly agent: Agent
  readonly process: ProcessKey
  readonly stdio: Stdio
  /** The process has a terminal. */
  readonly tty: boolean
  /** Copy the tool's stdin to the process; otherwise the process reads the end of its stdin at once. */
  readonly passInput: boolean
  /** Keys that leave the process alone; none without a terminal. */
  readonly detachKeys?: Buffer | undefined
  readonly interruptions: Interruptions
  /** Fires when the guest is gone or the run was interrupted. */
  readonly signal: AbortSignal
}

/** The same without signals, which go to the tool alone. */
export type Joined = Omit<Attachment, 'interruptions'>

/** The status when the tool's output has lost its reader: 128 + SIGPIPE. */
const BROKEN_PIPE_STATUS = 128 + constants.signals.SIGPIPE

/**
 * Follows a started process and returns its exit status, after all its output was written. Throws {@link Detached} when
 * the user leaves it.
 */
export async function attach(attachment: Attachment): Promise<number> {
  const undo = forwardSignals(attachment)
  try {
    return await withInput(attachment, { closesInput: true }, (signal) => outputAndStatus(attachment, signal))
  } finally {
    undo()
  }
}

/**
 * Joins a process of someone else until its outputs end. It lives on when stdin ends, at signals, and when the tool's
 * output has lost its reader, which throws {@link OutputClosed}; its status stays for its owner. Throws {@link Detached}
 * when the user leaves it.
 */
export async function joinProcess(joined: Joined): Promise<void> {
  await withInput(joined, { closesInput: false }, (signal) => copyOutputs(joined, signal))
}

/** Copies the input while `work` copies the outputs. */
async function withInput<T>(
  joined: Joined,
  { closesInput }: { readonly closesInput: boolean },
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController()
  const detached = new AbortController()
  const restore = followTerminal(joined)
  const input = copyStdin(joined, closesInput, AbortSignal.any([joined.signal, over.signal]))
  // Awaited below, when the outputs have ended.
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

/** Copies the outputs to their end. */
async function copyOutputs({ agent, process, stdio, tty }: Joined, signal: AbortSignal): Promise<void> {
  const outputs = [copyOutput(agent.readStdout, process, stdio.stdout, signal)]
  // A terminal has one stream.
  if (!tty) outputs.push(copyOutput(agent.readStderr, process, stdio.stderr, signal))
  // When one fails, the other fails with the connection later; its failure says nothing new.
  for (const output of outputs) output.catch(() => {})
  await Promise.all(outputs)
}

/** Copies the outputs to their end, then waits for the process: WaitProcess closes its streams. */
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

/** Copies stdin to the process until stdin ends, the process stops reading it, or `signal` fires. */
async function copyStdin(joined: Joined, closesInput: boolean, signal: AbortSignal): Promise<void> {
  const { agent, detachKeys, passInput, process, stdio, tty } = joined
  try {
    if (passInput) await copyInput(agent, process, stdio.stdin, signal, tty ? detachKeys : undefined)
    // A terminal without input stays open, because closing it would hang it up.
    if (closesInput && (passInput || !tty)) await agent.closeStdin(process, { signal })
  } catch (error) {
    // It is no failure when the process closed its stdin or ended; a lost connection also fails the outputs.
    if (!signal.aborted && !(error instanceof AgentError)) throw error
  }
}

/** Puts the tool's terminal into raw mode and forwards its size, until the returned function is called. */
function followTerminal({ agent, passInput, process, signal, stdio, tty }: Joined): () => void {
  if (!tty) return () => {}
  const resize = ({ rows, columns }: { readonly rows: number; readonly columns: number }) => {
    const request = { ...process, row: rows, column: columns }
    // It does not matter when the process ends before it gets the new size.
    agent.ttyWinResize(request, { signal }).catch(() => {})
  }
  const undo = [onResize(stdio, resize), passInput ? rawKeys(stdio) : () => {}]
  // The window may have changed since the process was created with its size.
  resize(terminalSize(stdio))
  return () => {
    for (const step of undo) step()
  }
}

/**
 * Sends the next signal of the tool to the process, until the returned function is called. With a terminal it does
 * nothing: there Ctrl-C is a key, and a signal means that the terminal is gone or that the tool is to end.
 */
function forwardSignals({ agent, interruptions, process, signal, tty }: Attachment): () => void {
  if (tty) return () => {}
  interruptions.forwardNext((signalNumber) => {
    const request = { ...process, signal: signalNumber }
    // The process may have just ended; then its status follows.
    agent.signalProcess(request, { signal }).catch(() => {})
  })
  return () => interruptions.forwardNext(undefined)
}
