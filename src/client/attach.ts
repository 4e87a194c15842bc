import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { AgentError } from '../base/errors.ts'
import type { Agent } from './container-session.ts'
import { Detached } from './detach-keys.ts'
import type { Interruptions } from './interruptions.ts'
import { copyInput, copyOutput, OutputClosed, type ProcessKey } from './stdio.ts'
import { onResize, rawKeys, type TerminalStreams, terminalSize } from './terminal.ts'

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

/** The status when the tool's output has lost its reader: 128 + SIGPIPE. */
const BROKEN_PIPE_STATUS = 128 + constants.signals.SIGPIPE

/**
 * Follows a started process and returns its exit status, after all its output was written. Throws {@link Detached} when
 * the user leaves it.
 */
export async function attach(attachment: Attachment): Promise<number> {
  const over = new AbortController()
  const detached = new AbortController()
  const undo = [followTerminal(attachment), forwardSignals(attachment)]
  const input = copyStdin(attachment, AbortSignal.any([attachment.signal, over.signal]))
  // Awaited below, when the outputs have ended.
  input.catch((error: unknown) => {
    if (error instanceof Detached) detached.abort(error)
  })
  try {
    return await outputAndStatus(attachment, AbortSignal.any([attachment.signal, detached.signal]))
  } finally {
    for (const step of undo) step()
    over.abort()
    await input
  }
}

/** Copies the outputs to their end, then waits for the process: WaitProcess closes its streams. */
async function outputAndStatus(attachment: Attachment, signal: AbortSignal): Promise<number> {
  const { agent, process, stdio, tty } = attachment
  const outputs = [copyOutput(agent.readStdout, process, stdio.stdout, signal)]
  // A terminal has one stream.
  if (!tty) outputs.push(copyOutput(agent.readStderr, process, stdio.stderr, signal))
  try {
    await Promise.all(outputs)
  } catch (error) {
    // The other copy fails with the connection later; its failure says nothing new.
    for (const output of outputs) output.catch(() => {})
    if (!(error instanceof OutputClosed)) throw error
    await agent.signalProcess({ ...process, signal: constants.signals.SIGKILL }, { signal })
    return BROKEN_PIPE_STATUS
  }
  const { status } = await agent.waitProcess(process, { signal })
  return status
}

/** Copies stdin to the process until stdin ends, the process stops reading it, or `signal` fires. */
async function copyStdin(attachment: Attachment, signal: AbortSignal): Promise<void> {
  const { agent, detachKeys, passInput, process, stdio, tty } = attachment
  try {
    if (passInput) await copyInput(agent, process, stdio.stdin, signal, tty ? detachKeys : undefined)
    // A terminal without input stays open, because closing it would hang it up.
    else if (!tty) await agent.closeStdin(process, { signal })
  } catch (error) {
    // It is no failure when the process closed its stdin or ended; a lost connection also fails the outputs.
    if (!signal.aborted && !(error instanceof AgentError)) throw error
  }
}

/** Puts the tool's terminal into raw mode and forwards its size, until the returned function is called. */
function followTerminal(attachment: Attachment): () => void {
  const { agent, passInput, process, signal, stdio, tty } = attachment
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
