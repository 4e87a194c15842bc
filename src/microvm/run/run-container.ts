import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { AgentError } from '../../base/errors.ts'
import { type Agent, createContainer, createSandbox, type NewContainer } from './container-session.ts'
import { copyInput } from './input.ts'
import type { Interruptions } from './interruptions.ts'
import { copyOutput, OutputClosed } from './output.ts'
import { onResize, rawKeys, type TerminalStreams, terminalSize } from './terminal.ts'
import type { Timings } from './timings.ts'

/** The tool's own stdio. */
export interface Stdio {
  readonly stdin: Readable & TerminalStreams['stdin']
  readonly stdout: Writable & TerminalStreams['stdout']
  readonly stderr: Writable
}

/** One container's run on a connected agent. */
export interface ContainerRun {
  readonly agent: Agent
  readonly container: NewContainer
  readonly stdio: Stdio
  /** The process has a terminal. */
  readonly tty: boolean
  /** Our stdin is passed on; otherwise the process finds its stdin at its end. */
  readonly passInput: boolean
  readonly timings: Timings
  readonly interruptions: Interruptions
  /** Fires when the guest is gone or the run was interrupted. */
  readonly signal: AbortSignal
}

/** What a program that nobody reads any more ends with: 128 + SIGPIPE. */
const BROKEN_PIPE_STATUS = 128 + constants.signals.SIGPIPE

/** Runs the container from sandbox to exit status. What it writes has been written when this resolves. */
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
  const input = feed(run, AbortSignal.any([signal, over.signal]))
  // Looked at below, when the outputs have ended.
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

/** WaitProcess closes the streams, so it comes after their end. */
async function outputAndStatus(run: ContainerRun): Promise<number> {
  const { agent, container, signal, stdio, tty } = run
  const process = { containerId: container.id, execId: container.id }
  const outputs = [copyOutput(agent.readStdout, container.id, stdio.stdout, signal)]
  // A terminal has one stream.
  if (!tty) outputs.push(copyOutput(agent.readStderr, container.id, stdio.stderr, signal))
  try {
    await Promise.all(outputs)
  } catch (error) {
    // A loop that goes on alone fails with the connection; its failure says nothing new.
    for (const output of outputs) output.catch(() => {})
    if (!(error instanceof OutputClosed)) throw error
    await agent.signalProcess({ ...process, signal: constants.signals.SIGKILL }, { signal })
    return BROKEN_PIPE_STATUS
  }
  const { status } = await agent.waitProcess(process, { signal })
  return status
}

/** Gives the process its stdin until that ends, the process no longer reads it, or `signal` fires. */
async function feed(run: ContainerRun, signal: AbortSignal): Promise<void> {
  const { agent, container, passInput, stdio, tty } = run
  try {
    if (passInput) await copyInput(agent, container.id, stdio.stdin, signal)
    // A terminal without input stays open: closing it would hang it up.
    else if (!tty) await agent.closeStdin({ containerId: container.id, execId: container.id }, { signal })
  } catch (error) {
    // A process that closed its stdin or ended is no failure; a lost connection fails the outputs as well.
    if (!signal.aborted && !(error instanceof AgentError)) throw error
  }
}

/** Keys go raw, and the size follows ours, until the returned function is called. */
function followTerminal(run: ContainerRun): () => void {
  const { agent, container, passInput, signal, stdio, tty } = run
  if (!tty) return () => {}
  const resize = ({ rows, columns }: { readonly rows: number; readonly columns: number }) => {
    const request = { containerId: container.id, execId: container.id, row: rows, column: columns }
    // A size that came too late for the process, or was overtaken by its end, does not matter.
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
 * The next signal of the tool goes to the process, until the returned function is called. Not with a terminal: there
 * Ctrl-C is a key, and a signal says that the terminal is gone or somebody wants the tool to end.
 */
function forwardSignals({ agent, container, interruptions, signal, tty }: ContainerRun): () => void {
  if (tty) return () => {}
  interruptions.forwardNext((signalNumber) => {
    const request = { containerId: container.id, execId: container.id, signal: signalNumber }
    // The process may just have ended; then its status is on its way.
    agent.signalProcess(request, { signal }).catch(() => {})
  })
  return () => interruptions.forwardNext(undefined)
}
