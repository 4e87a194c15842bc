import { abortable, withTimeout } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { RemoveContainerRequest } from '../../gen/agent.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import type { Container, ContainerParts } from './container.ts'
import { unknownContainer } from './registry.ts'

/**
 * How long processes may take to end where the request names no time, as those of all hosts do not. The hosts
 * themselves give up after a minute: so they learn why, and a later removal finds nobody in its way.
 */
const PATIENCE_SECONDS = 50

interface Removal {
  readonly context: SandboxContext
  readonly container: Container
  readonly signal: AbortSignal
  /** How long the processes may take to end; 0 for the agent's own patience. */
  readonly timeoutSeconds: number
}

/** RemoveContainer (behaviour spec, section C.3). A transition under way is waited for, then the removal is ours. */
export async function removeContainer(
  context: SandboxContext,
  request: RemoveContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  const container = context.containers.tryGet(request.containerId)
  if (container === undefined) throw unknownContainer('INTERNAL')
  const removed = await removeSettled({ context, container, signal, timeoutSeconds: request.timeout })
  if (!removed) throw unknownContainer('INTERNAL')
}

/** Removes a container as soon as no transition is under way; false when it was gone by then. */
export async function removeSettled(removal: Removal): Promise<boolean> {
  const { container, signal } = removal
  for (let wait = container.transition; wait !== undefined; wait = container.transition) {
    container.hurryStart()
    await abortable(wait, signal)
  }
  if (container.state.name === 'gone') return false
  await remove(removal)
  return true
}

async function remove(removal: Removal): Promise<void> {
  const { context, container, timeoutSeconds } = removal
  const parts = container.beginRemove()
  try {
    const ended = endProcesses(context, parts)
    const ms = (timeoutSeconds || PATIENCE_SECONDS) * 1000
    await withTimeout(context.os.clock, ms, ended, () => lateEnd(removal, parts))
    await context.oom.end(container.id)
    // Only now: a runtime that deletes by force waits for zombies that somebody else has to reap.
    const complaint = await context.runtime.delete(container.id, poststopMs(parts))
    if (complaint !== undefined) {
      context.log.warn('poststop hook failed', { containerId: container.id, error: complaint })
    }
    for (const { stdio } of parts.processes.known()) stdio.close()
    await parts.release()
  } catch (error) {
    container.removeFailed(parts)
    throw error
  }
  context.containers.drop(container)
}

/** How long the poststop hooks may take, which the runtime runs: each was given a time. */
function poststopMs({ spec }: ContainerParts): number {
  const hooks = spec.current.Hooks?.Poststop ?? []
  return hooks.reduce((ms, { Timeout }) => ms + Number(Timeout) * 1000, 0)
}

/** Kills everything in the container and waits until vminit has reaped what we know of. */
async function endProcesses(context: SandboxContext, parts: ContainerParts): Promise<void> {
  const killAll = async () => {
    await parts.cgroup.killAll()
    for (const { pid, status } of parts.processes.known()) if (status === undefined) kill(context, pid)
  }
  await killAll()
  // A process that was being started may have joined the cgroup after that.
  if (await parts.processes.settled()) await killAll()
  const ends = [parts.init, ...parts.processes.known()].map(({ ended }) => ended)
  await Promise.allSettled(ends)
}

function kill({ os, log }: SandboxContext, pid: number): void {
  try {
    killIfAlive(os, pid)
  } catch (error) {
    log.warn('kill failed', { pid, error: messageOf(error) })
  }
}

/** What is said when processes have not ended in time: a killed one does not while the kernel holds it (state D). */
function lateEnd({ container, timeoutSeconds }: Removal, { init, processes }: ContainerParts): AgentError {
  const left = new Set([init, ...processes.known()].filter(({ status }) => status === undefined))
  const pids = [...left].map(({ pid }) => pid).join(', ') || 'being added'
  const code = timeoutSeconds === 0 ? 'DEADLINE_EXCEEDED' : 'INTERNAL'
  const seconds = timeoutSeconds || PATIENCE_SECONDS
  const text = `remove container ${container.id}: ETIME: processes (${pids}) not ended within ${seconds} s`
  return new AgentError(code, text, { errno: 'ETIME' })
}
