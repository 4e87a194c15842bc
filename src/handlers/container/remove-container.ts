import { neverAborted, withTimeout } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { inStep } from '../../base/step.ts'
import type { RemoveContainerRequest } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import type { Call } from '../../state/request.ts'
import { EMPTY_RESPONSE, type RequestJournal } from '../../state/request-journal.ts'
import type { ContainersCgroup } from '../cgroup/containers-cgroup.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import type { FileCopies } from '../storage/copies/file-copies.ts'
import { type Container, type ContainerParts, toBeRemoved } from './container.ts'
import { type ContainerRegistry, unknownContainer } from './registry.ts'

/** For requests without a time. Hosts give up after a minute; a shorter time lets the answer tell them the reason. */
const DEFAULT_TIMEOUT_SECONDS = 50

export interface RemoveContext {
  readonly os: Os
  readonly log: Logger
  readonly containers: ContainerRegistry
  readonly containersCgroup: Pick<ContainersCgroup, 'removeParents'>
  readonly runtime: Pick<OciRuntime, 'delete'>
  readonly oom: OomEvents
  readonly fileCopies: Pick<FileCopies, 'dropOf'>
  readonly requests: Pick<RequestJournal, 'answer'>
}

export async function removeContainer(
  dependencies: RemoveContext,
  request: RemoveContainerRequest,
  call: Call,
): Promise<void> {
  const container = dependencies.containers.tryGet(request.containerId)
  if (container === undefined) throw dependencies.containers.unknown(request.containerId, 'INTERNAL')
  const removed = await endAndRemove(dependencies, container, call, request.timeout)
  if (!removed) throw unknownContainer('INTERNAL')
}

/**
 * Interrupts a transition under way, then removes the container. Resolves with false when it was gone before; an interrupted
 * creation counts as removed. `timeoutSeconds` limits the end of its processes, 0 for the default.
 */
export async function endAndRemove(
  dependencies: RemoveContext,
  container: Container,
  call: Call,
  timeoutSeconds = 0,
): Promise<boolean> {
  let endedCreation = false
  for (let { state } = container; container.isInTransition; { state } = container) {
    if (state.name !== 'removing') {
      endedCreation = state.name === 'creating'
      container.interrupt()
      if ('parts' in state) {
        state.parts.processes.interruptStarts(() => toBeRemoved(container.id))
        await state.parts.cgroup.killAll()
      }
    }
    await inStep('container', `${container.id}: ${state.name}`, () => container.changed(state, call.signal))
  }
  if (container.state.name === 'gone') return endedCreation
  await remove(dependencies, container, call, timeoutSeconds)
  return true
}

async function remove(
  dependencies: RemoveContext,
  container: Container,
  call: Call,
  timeoutSeconds: number,
): Promise<void> {
  const { os, log, containers, runtime, oom, requests } = dependencies
  const parts = container.beginRemove(call.number)
  try {
    const ended = endProcesses(dependencies, container.id, parts)
    const ms = (timeoutSeconds || DEFAULT_TIMEOUT_SECONDS) * 1000
    await inStep('processes', container.id, () =>
      withTimeout(os.clock, ms, ended, () => notEndedInTime(container.id, timeoutSeconds, parts)),
    )
    await oom.end(parts.record.key)
    // Drop unfinished files before the storages that may have them are detached.
    await dependencies.fileCopies.dropOf(parts.record.key)
    // Since a Rename, files that are copied for the container have its new id.
    if (!containers.list().some(({ record }) => record.key === container.id))
      await dependencies.fileCopies.dropOf(container.id)
    // Delete after the reaping: a runtime that deletes by force waits for zombies, which vminit has to reap.
    const hookFailure = await runtime.delete(
      {
        id: parts.record.key,
        initPid: parts.init.pid,
        cgroupPath: container.cgroupPath,
        spec: parts.spec.current,
        clear: () => clear(parts),
      },
      poststopMs(parts),
    )
    if (hookFailure !== undefined) {
      log.warn('poststop hook failed', { containerId: container.id, error: hookFailure })
    }
    await Promise.all(parts.processes.tracked().map(({ stdio }) => stdio.close()))
    // `clear` has done this, unless the runtime deleted the container by its program.
    await parts.release()
    for (const process of new Set([parts.init, ...parts.processes.tracked()])) process.forgetExit()
    // Answer before the record is removed: a call that is sent again would not find the container.
    requests.answer(call, EMPTY_RESPONSE)
  } catch (error) {
    container.removeFailed(parts)
    throw error
  }
  containers.drop(container)
  await dependencies.containersCgroup.removeParents(container.cgroupPath, containers.cgroupPaths())
}

/** Waits for both at once: the kernel takes its time for each. Throws when a cgroup stays. */
async function clear({ cgroup, release }: ContainerParts): Promise<void> {
  const [removal] = await Promise.allSettled([cgroup.remove(), release()])
  if (removal.status === 'rejected') throw removal.reason
}

/** How long the runtime may run the poststop hooks: the sum of their time-outs. */
function poststopMs({ spec }: ContainerParts): number {
  const hooks = spec.current.Hooks?.Poststop ?? []
  return hooks.reduce((ms, { Timeout }) => ms + Number(Timeout) * 1000, 0)
}

/** Kills all processes of the container, and waits until vminit has reaped the tracked ones. */
async function endProcesses(
  { os, log }: Pick<RemoveContext, 'os' | 'log'>,
  id: string,
  { init, processes, cgroup }: ContainerParts,
): Promise<void> {
  processes.interruptStarts(() => toBeRemoved(id))
  const killAll = async () => {
    await cgroup.killAll()
    for (const { pid, status } of processes.tracked()) if (status === undefined) kill(os, log, pid)
  }
  await killAll()
  // A process that was being started may have joined the cgroup after the first kill.
  if (await processes.settled(neverAborted)) await killAll()
  const ends = [init, ...processes.tracked()].map(({ ended }) => ended)
  await Promise.allSettled(ends)
}

function kill(os: Os, log: Logger, pid: number): void {
  try {
    killIfAlive(os, pid)
  } catch (error) {
    log.warn('kill failed', { pid, error: messageOf(error) })
  }
}

/** The kernel may keep a killed process in state D. */
function notEndedInTime(id: string, timeoutSeconds: number, { init, processes }: ContainerParts): AgentError {
  const alive = new Set([init, ...processes.tracked()].filter(({ status }) => status === undefined))
  const pids = [...alive].map(({ pid }) => pid).join(', ') || 'being added'
  const code = timeoutSeconds === 0 ? 'DEADLINE_EXCEEDED' : 'INTERNAL'
  const seconds = timeoutSeconds || DEFAULT_TIMEOUT_SECONDS
  const text = `remove container ${id}: ETIME: processes (${pids}) not ended within ${seconds} s`
  return new AgentError(code, text, { errno: 'ETIME' })
}
