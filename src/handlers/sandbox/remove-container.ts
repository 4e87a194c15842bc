import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { LONGEST_TIMER_MS } from '../../base/longest-timer.ts'
import { raceSignal } from '../../base/signals.ts'
import type { RemoveContainerRequest } from '../../gen/agent.ts'
import type { Container, ContainerParts } from '../container/container.ts'
import { unknownContainer } from '../container/registry.ts'
import type { SandboxContext } from './context.ts'

const SIGKILL = 9

interface Removal {
  readonly context: SandboxContext
  readonly container: Container
  readonly signal: AbortSignal
  /** How long the processes may take to end; 0 waits as long as it takes. */
  readonly timeoutSeconds: number
}

/** RemoveContainer (behaviour spec, section C.3). A transition under way is waited for, then the removal is ours. */
export async function removeContainer(
  context: SandboxContext,
  request: RemoveContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  const container = context.containers.get(request.containerId)
  if (container === undefined) throw unknownContainer('INTERNAL')
  const removed = await removeSettled({ context, container, signal, timeoutSeconds: request.timeout })
  if (!removed) throw unknownContainer('INTERNAL')
}

/** Removes a container as soon as no transition is under way; false when it was gone by then. */
export async function removeSettled(removal: Removal): Promise<boolean> {
  const { container, signal } = removal
  for (let wait = container.transition; wait !== undefined; wait = container.transition) {
    await raceSignal(wait, signal)
  }
  if (container.state.name === 'gone') return false
  await remove(removal)
  return true
}

async function remove({ context, container, timeoutSeconds }: Removal): Promise<void> {
  const parts = container.beginRemove()
  try {
    await inTime(context, timeoutSeconds, container.id, endProcesses(context, parts))
    await context.oom.end(container.id)
    // Only now: a runtime that deletes by force waits for zombies that somebody else has to reap.
    const complaint = await context.runtime.delete(container.id)
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

/** Kills everything in the container and waits until vminit has reaped what we know of. */
async function endProcesses(context: SandboxContext, parts: ContainerParts): Promise<void> {
  const killAll = async () => {
    await parts.cgroup.killAll()
    for (const { pid, status } of parts.processes.known()) if (status === undefined) kill(context, pid)
  }
  await killAll()
  // A process that was being started may have joined the cgroup after that.
  await parts.processes.settled()
  await killAll()
  const ends = [parts.init, ...parts.processes.known()].map(({ ended }) => ended)
  await Promise.allSettled(ends)
}

function kill({ os, log }: SandboxContext, pid: number): void {
  try {
    os.system.signal(pid, SIGKILL)
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') log.warn('kill failed', { pid, error: messageOf(error) })
  }
}

/** Waits for `work`, which goes on, at most so long. Throws INTERNAL with errno ETIME. */
async function inTime(
  { os }: SandboxContext,
  seconds: number,
  containerId: string,
  work: Promise<void>,
): Promise<void> {
  if (seconds === 0) return work
  const done = new AbortController()
  const late = os.clock.sleep(Math.min(seconds * 1000, LONGEST_TIMER_MS), done.signal).then(() => {
    const text = `remove container ${containerId}: ETIME: not ended within ${seconds} s`
    throw new AgentError('INTERNAL', text, { errno: 'ETIME' })
  })
  try {
    await Promise.race([work, late])
  } finally {
    done.abort()
  }
}
