import { withTimeout } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import type { ProcessStreams, StartedProcess } from '../oci-runtime/runtime-calls.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { connectPorts, type StdioPorts } from '../stdio/connect-ports.ts'
import type { PortConnections } from '../stdio/port-connections.ts'
import { openPipes, type Stdio } from '../stdio/stdio.ts'
import { terminalStdio } from '../stdio/terminal-stdio.ts'
import { ContainerProcess } from './process.ts'

/** How long a process that is taken back may take to end. */
const END_MS = 10_000

/** A process about to be started. */
interface Launch {
  readonly hasTerminal: boolean
  /** The host's connections for its streams, from {@link connectStdio}. */
  readonly connections: PortConnections
  /** Gets the undo of every step: the process is killed and its streams are closed. */
  readonly undo: UndoList
  /** Runs the runtime, and tells the process as soon as it is known. */
  readonly start: (
    streams: ProcessStreams,
    onPid: (pid: number | undefined) => void,
  ) => Promise<StartedProcess>
  /** Ends a process that may have been made and that nobody knows. */
  readonly endUnknown: () => Promise<void>
}

/** Gets the host's connections for a process's streams, and their undo. */
export async function connectStdio(
  { os, hostStreams }: SandboxContext,
  process: { readonly ports: StdioPorts; readonly hasTerminal: boolean; readonly undo: UndoList },
  signal: AbortSignal,
): Promise<PortConnections> {
  const { ports, hasTerminal, undo } = process
  const connections = await connectPorts(
    { streams: os.streams, host: hostStreams, ports, hasTerminal },
    signal,
  )
  undo.add('connections of stdio', () => connections.close())
  return connections
}

/** Starts a process through the runtime with streams of its own, and follows its exit. */
export async function launch(context: SandboxContext, process: Launch): Promise<ContainerProcess> {
  // Before the runtime runs: the process may have ended before its pid is known to us.
  const watch = context.os.exits.watch()
  const begin = (pid: number) => {
    const exit = watch.exitOf(pid)
    let isOver = false
    const over = () => {
      isOver = true
    }
    exit.then(over, over)
    process.undo.add('process', async () => {
      // The number of a process that was reaped may be another's by now.
      if (!isOver) killIfAlive(context.os, pid)
      await withTimeout(context.os.clock, END_MS, exit, () => notEnded(pid))
    })
    return { pid, exit, log: context.log }
  }
  let followed: Followed | undefined
  const follow = (pid: number) => {
    followed ??= begin(pid)
    return followed
  }
  const onPid = (pid: number | undefined) => {
    if (pid !== undefined) follow(pid)
    else process.undo.add('unknown process', () => endUnknown(context, process))
  }
  try {
    return process.hasTerminal
      ? await onTerminal(context, process, { follow, onPid })
      : await onPipes(context, process, { follow, onPid })
  } finally {
    watch.close()
  }
}

type Followed = Omit<ConstructorParameters<typeof ContainerProcess>[0], 'stdio'>

/** What is done about the process once the runtime has made it. */
interface Following {
  readonly follow: (pid: number) => Followed
  readonly onPid: (pid: number | undefined) => void
}

async function onTerminal(
  { os }: SandboxContext,
  { start, undo, connections }: Launch,
  { follow, onPid }: Following,
) {
  const { pid, master } = await start('terminal', onPid)
  const followed = follow(pid)
  if (master === undefined) throw new Error('the runtime client returned no terminal')
  const stdio = terminalStdio(os, master, connections)
  undo.add('stdio', () => closed(stdio))
  return new ContainerProcess({ ...followed, stdio })
}

async function onPipes(
  { os, config }: SandboxContext,
  { start, undo, connections }: Launch,
  { follow, onPid }: Following,
) {
  const { stdio, childEnd, closeChildEnds } = openPipes(os, config.containerPipeSizeBytes, connections)
  undo.add('stdio', () => closed(stdio))
  try {
    const { pid } = await start({ pipes: childEnd }, onPid)
    return new ContainerProcess({ ...follow(pid), stdio })
  } finally {
    closeChildEnds()
  }
}

/** The host sees its connections closed before the call's failure is answered. */
async function closed(stdio: Stdio): Promise<void> {
  stdio.close()
  await stdio.delivered
}

function endUnknown({ os }: SandboxContext, { endUnknown: end }: Launch): Promise<void> {
  return withTimeout(os.clock, END_MS, end(), () => notEnded('without a known pid'))
}

function notEnded(which: number | string): AgentError {
  return new AgentError('INTERNAL', `process ${which}: killed, and not ended within ${END_MS / 1000} s`)
}
