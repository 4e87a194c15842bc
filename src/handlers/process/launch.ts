import { withTimeout } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import type { ConsoleListener } from '../../os/streams/consoles.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { Call } from '../../state/request.ts'
import type { LaunchOutcome, ProcessStreams } from '../oci-runtime/run.ts'
import { connectPorts, type StdioPorts } from '../stdio/connect-ports.ts'
import type { HostConnections } from '../stdio/host-connections.ts'
import type { OutputReplay } from '../stdio/output-replay.ts'
import type { PortConnections } from '../stdio/port-connections.ts'
import type { PortLinks } from '../stdio/ports/port-links.ts'
import { openPipes, type Pipes, type Stdio } from '../stdio/stdio.ts'
import { StoredDescriptors } from '../stdio/stored-descriptors.ts'
import { terminalStdio } from '../stdio/terminal-stdio.ts'
import { ContainerProcess } from './process.ts'
import type { ProcessKeys } from './process-keys.ts'

export interface LaunchContext {
  readonly os: Pick<Os, 'clock' | 'exits' | 'streams' | 'system' | 'descriptors'>
  readonly log: Logger
  readonly config: { readonly containerPipeSizeBytes: number }
  readonly hostConnections: HostConnections
  readonly keys: ProcessKeys
  readonly replay: OutputReplay
  readonly ports: PortLinks
}

export interface Launch {
  readonly streams: ProcessStreams
  /** Whether vminit has reported the end of a process that began since. */
  hasEnded(pid: number): boolean
  /** Follows the process's exit. Throws the error of a half-started outcome, after it has registered the undo for its pid. */
  follow(outcome: LaunchOutcome): Promise<ContainerProcess>
  /** Closes what only the launch itself needs. Must be called once, after `follow`. */
  close(): Promise<void>
}

/** Connects the ports of a request with the host. The undo closes the connections. */
export async function connectStdio(
  { os, hostConnections, ports }: Pick<LaunchContext, 'os' | 'hostConnections' | 'ports'>,
  process: {
    readonly ports: StdioPorts
    readonly hasTerminal: boolean
    readonly onFailure: UndoList
  },
  call: Call,
): Promise<PortConnections> {
  const { onFailure, ...wanted } = process
  if (Object.values(wanted.ports).some((port) => port !== 0)) ports.checkOpen()
  const request = { streams: os.streams, host: hostConnections, resumes: ports.resumes, ...wanted }
  const connections = await inStep('ports', '', () => connectPorts(request, call))
  onFailure.add('connections of stdio', async () => {
    await connections.close()
    await connections.settled()
  })
  return connections
}

/**
 * Watches for exits, and opens and stores the streams, all before the runtime runs: the process may end before its pid is
 * known. Throws RESOURCE_EXHAUSTED when vminit's store is full. `onFailure` kills the process and closes its streams.
 */
export async function prepareLaunch(
  { os, log, config, replay, ports }: LaunchContext,
  process: {
    readonly key: string
    readonly hasTerminal: boolean
    readonly connections: PortConnections
    readonly onFailure: UndoList
  },
): Promise<Launch> {
  const { key, hasTerminal, connections, onFailure } = process
  const watch = os.exits.watch()
  const stored = new StoredDescriptors(os.descriptors, process.key)
  onFailure.add('stored descriptors', () => stored.removeAll())
  let pipes: Pipes | undefined
  try {
    connections.keepIn(stored, hasTerminal)
    if (!hasTerminal) {
      const opened = openPipes({ ...os, replay, ports }, config.containerPipeSizeBytes, connections, stored)
      onFailure.add('stdio', () => closeStdio(opened.stdio))
      pipes = opened
    }
    await stored.accepted()
  } catch (error) {
    pipes?.closeChildEnds()
    watch.close()
    throw error
  }
  const piped = pipes?.stdio

  const followExit = (pid: number) => {
    // Ask synchronously: the promise of an exit that was reported before resolves only after an undo in this tick.
    let hasEnded = watch.hasEnded(pid)
    const exit = watch.exitOf(pid)
    // Keep the exit before the watch closes, because vminit may drop it then.
    os.exits.keep(pid)
    const ended = () => {
      hasEnded = true
    }
    exit.then(ended, ended)
    onFailure.add('process', async () => {
      // Once the process is reaped, its pid may be reused.
      if (!hasEnded) killIfAlive(os, pid)
      try {
        await withTimeout(os.clock, END_MS, exit, () => notEnded(pid))
      } finally {
        os.exits.forget(pid)
      }
    })
    return exit
  }

  const stdioOnTerminal = async (master: Fd | undefined) => {
    if (master === undefined) throw new Error('the runtime client returned no terminal')
    const stdio = terminalStdio({ ...os, replay, ports }, master, connections, stored)
    onFailure.add('stdio', () => closeStdio(stdio))
    await stored.accepted()
    return stdio
  }
  const terminal: ConsoleListener = {
    listening: (socket) => stored.put('console', socket),
    received: (master) => stored.put('master', master),
  }

  return {
    streams: pipes === undefined ? { terminal } : { pipes: pipes.childEnds },
    hasEnded: watch.hasEnded,
    async follow(outcome) {
      if (outcome.kind === 'half-started') {
        if (outcome.pid !== undefined) void followExit(outcome.pid)
        throw outcome.error
      }
      const { pid, master } = outcome
      const exit = followExit(pid)
      const stdio = piped ?? (await stdioOnTerminal(master))
      return new ContainerProcess({ key, pid, exit, exits: os.exits, stdio, log })
    },
    async close() {
      pipes?.closeChildEnds()
      watch.close()
      await Promise.all([stored.remove('console'), connections.settled()])
    },
  }
}

/** How long a process that an undo has killed may take to end. */
export const END_MS = 10_000

/** The kernel may keep a killed process in state D. */
export function notEnded(which: number | string): AgentError {
  return new AgentError('INTERNAL', `process ${which}: killed, and not ended within ${END_MS / 1000} s`)
}

/** Resolves once the host can see the end of the streams, so that it sees it before the call's failure. */
async function closeStdio(stdio: Stdio): Promise<void> {
  await Promise.all([stdio.close(), stdio.delivered])
}
