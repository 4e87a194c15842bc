import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { AgentError } from '../../base/errors.ts'
import { type Agent, createContainer, createSandbox, type NewContainer } from './container-session.ts'
import type { Interruptions } from './interruptions.ts'
import type { Timings } from './reporter.ts'
import { copyInput, copyOutput, OutputClosed } from './stdio.ts'
import { onResize, rawKeys, type TerminalStreams, terminalSize } from './terminal.ts'

/** The tool's own stdio. */
export interface Stdio {
  readonly stdin: Readable & TerminalStreams['stdin']
  readonly stdout: Writable & TerminalStreams['stdout']
  readonly stderr: Writable
}

/** One run of a container on a connected agent. */
export interface ContainerRun {
  readonly agent: Agent
  readonly container: NewContainer
  readonly stdio: Stdio
  /** The process has a terminal. */
  readonly tty: boolean
  /** Copy the tool's stdin to the process; otherwise the process reads the end of its stdin at once. */
  readonly passInput: boolean
  readonly timings: Timings
  readonly interruptions: Interruptions
  /** Fires when the guest is gone or the run was interrupted. */
  readonly signal: AbortSignal
}

/** The status when the tool's output has lost its reader: 128 + SIGPIPE. */
const BROKEN_PIPE_STATUS = 128 + constants.signals.SIGPIPE

/** Creates the sandbox and the container, runs it and returns its exit status, after all its output was written. */
export async function runContainer(run: ContainerRun): Promise<number> {
  const { agent, container, signal, timings } = run
  const { id, hostname } = container
  await createSandbox(agent, { id, hostname }, signal)
  await createContainer(agent, container, signal)
  timings.end('create')
  await agent.startContainer({ containerId: id }, { signal })
  timings.end('start')
  const over = new AbortController()
  const undo = [followTerminal(run), forwardSignals(run)]
  const input = copyStdin(run, AbortSignal.any([signal, over.signal]))
  // Awaited below, when the outputs have ended.
  input.catch(() => {})
  try {
    return await outputAndStatus(run)
  } finally {
    for (const step of undo) step()
    over.abort()
    await input
    timings.end('run')
  }
}

/** Copies the outputs to their end, then waits for the process: WaitProcess closes its streams. */
async function outputAndStatus(run: ContainerRun): Promise<number> {
  const { agent, container, signal, stdio, tty } = run
  const process = { containerId: container.id, execId: container.id }
  const outputs = [copyOutput(agent.readStdout, container.id, stdio.stdout, signal)]
  // A terminal has one stream.
  if (!tty) outputs.push(copyOutput(agent.readStderr, container.id, stdio.stderr, signal))
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
async function copyStdin(run: ContainerRun, signal: AbortSignal): Promise<void> {
  const { agent, container, passInput, stdio, tty } = run
  try {
    if (passInput) await copyInput(agent, container.id, stdio.stdin, signal)
    // A terminal without input stays open, because closing it would hang it up.
    else if (!tty) await agent.closeStdin({ containerId: container.id, execId: container.id }, { signal })
  } catch (error) {
    // It is no failure when the process closed its stdin or ended; a lost connection also fails the outputs.
    if (!signal.aborted && !(error instanceof AgentError)) throw error
  }
}

/** Puts the tool's terminal into raw mode and forwards its size, until the returned function is called. */
function followTerminal(run: ContainerRun): () => void {
  const { agent, container, passInput, signal, stdio, tty } = run
  if (!tty) return () => {}
  const resize = ({ rows, columns }: { readonly rows: number; readonly columns: number }) => {
    const request = { containerId: container.id, execId: container.id, row: rows, column: columns }
    // It does not matter when the process ends before it gets the new size.
    agent.ttyWinResize(request, { signal }).catch(() => {})
  }
  const undo = [onResize(stdio, resize), passInput ? rawKeys(stdio) : () => {}]
  // The window may have changed since the container was created with its size.
  resize(terminalSize(stdio))
  return () => {
    for (const step of undo) step()
  }
}

/**
 * Sends the next signal of the tool to the process, until the returned function is called. With a terminal it does
 * nothing: there Ctrl-C is a key, and a signal means that the terminal is gone or that the tool is to end.
 */
function forwardSignals({ agent, container, interruptions, signal, tty }: ContainerRun): () => void {
  if (tty) return () => {}
  interruptions.forwardNext((signalNumber) => {
    const request = { containerId: container.id, execId: container.id, signal: signalNumber }
    // The process may have just ended; then its status follows.
    agent.signalProcess(request, { signal }).catch(() => {})
  })
  return () => interruptions.forwardNext(undefined)
}
