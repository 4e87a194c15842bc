import { abortable, neverAborted } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { ExecProcessRequest } from '../../gen/agent.ts'
import type { Process } from '../../gen/oci.ts'
import { checkProcess } from '../../oci/check-process.ts'
import { execProcess as inheriting } from '../../oci/exec-process.ts'
import { withGuestPciAddresses } from '../../oci/pci-environment.ts'
import type { Clock } from '../../os/clock.ts'
import type { ContainerParts } from '../container/container.ts'
import { unknownContainer } from '../container/registry.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { connectStdio, launch } from './launch.ts'
import type { ContainerProcess } from './process.ts'
import type { Reservation } from './process-table.ts'
import { killUntrackedProcesses } from './untracked-processes.ts'

/**
 * How long the runtime may go on after the caller gave up. Killed between starting the process and telling its pid,
 * it would leave a process that nobody knows.
 */
const GRACE_MS = 2000

/** ExecProcess (behaviour spec, section C.4): adds a process to a container and starts it at once. */
export async function execProcess(
  context: SandboxContext,
  request: ExecProcessRequest,
  signal: AbortSignal,
): Promise<void> {
  if (request.process === undefined) {
    throw new AgentError('INTERNAL', 'Unable to parse process from ExecProcessRequest')
  }
  checkProcess(request.process)
  const parts = await livingContainer(context, request.containerId, signal)
  const { Env } = request.process
  const environment = withGuestPciAddresses(Env, parts.pciAddresses)
  const process = inheriting({ ...request.process, Env: environment }, parts.spec.current.Process)
  const reservation = parts.processes.reserve(request.execId)
  const undo = new UndoList(context.log)
  undo.add('reservation', () => reservation.abandon())
  try {
    const started = await start(context, { request, parts, process, reservation, undo, signal })
    signal.throwIfAborted()
    reservation.publish(started)
  } catch (error) {
    await undo.run()
    throw error
  }
}

/** The container, once it is created and neither starts nor is adjusted. A process can only be added to a living one. */
async function livingContainer(
  { containers }: SandboxContext,
  id: string,
  signal: AbortSignal,
): Promise<ContainerParts> {
  const { container } = await containers.waitFor(id, 'INTERNAL', signal)
  while (container.state.name === 'starting' || container.state.name === 'updating') {
    await abortable(container.state.settled, signal)
  }
  const { state } = container
  if (state.name === 'paused') throw new AgentError('INTERNAL', `container ${container.id} is paused`)
  if (state.name === 'stopped') {
    throw new AgentError('NOT_FOUND', 'Process not found: init process missing')
  }
  if (state.name !== 'created' && state.name !== 'running') throw unknownContainer('INTERNAL')
  return state.parts
}

interface Addition {
  readonly request: ExecProcessRequest
  readonly parts: ContainerParts
  readonly process: Process
  readonly reservation: Reservation
  readonly undo: UndoList
  readonly signal: AbortSignal
}

async function start(context: SandboxContext, addition: Addition): Promise<ContainerProcess> {
  const { request, parts, process, reservation, undo, signal } = addition
  const { containerId } = request
  const hasTerminal = process.Terminal
  signal.throwIfAborted()
  const connections = await connectStdio(context, { ports: request, hasTerminal, undo }, signal)
  const grace = graceAfter(signal, context.os.clock)
  try {
    // Where the first process has gone: one that divides its cgroup may have nobody left in it (cgroup v2).
    const cgroup = await parts.cgroup.innerPathOf(parts.init.pid)
    return await launch(context, {
      hasTerminal,
      connections,
      undo,
      endUnknown: () => {
        reservation.failed()
        return endUnknown(context, parts)
      },
      start: (streams, onPid) =>
        context.runtime.exec({ containerId, process, streams, onPid, cgroup }, grace.signal),
    })
  } finally {
    grace.stop()
  }
}

/** Goes by a list of a moment when no others were being added, which nobody knows either until they are. */
async function endUnknown(
  { os }: SandboxContext,
  { init, processes, cgroup }: ContainerParts,
): Promise<void> {
  const work = async () => {
    let members = await cgroup.members()
    while (await processes.added()) members = await cgroup.members()
    const known = new Set([init, ...processes.known()].map(({ pid }) => pid))
    await killUntrackedProcesses(os, members, known)
  }
  await processes.untrackedSearch.run(work, neverAborted)
}

/** A signal that fires a little after `signal`, until it is stopped. */
function graceAfter(signal: AbortSignal, clock: Clock): { readonly signal: AbortSignal; stop(): void } {
  const later = new AbortController()
  const stopped = new AbortController()
  const onAbort = () => {
    clock.sleep(GRACE_MS, stopped.signal).then(
      () => later.abort(signal.reason),
      () => {},
    )
  }
  signal.addEventListener('abort', onAbort, { once: true })
  return {
    signal: later.signal,
    stop: () => {
      signal.removeEventListener('abort', onAbort)
      stopped.abort()
    },
  }
}
