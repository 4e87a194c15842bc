import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { PauseContainerRequest, ResumeContainerRequest } from '../../gen/agent.ts'
import type { Call } from '../../state/request.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import type { ContainerUpdate } from './container.ts'
import { Phase } from './container-record.ts'
import type { ContainerRegistry } from './registry.ts'
import { beginUpdate } from './update-container.ts'

/** PauseContainer: freezes all processes, also those of a container that awaits its start. */
export async function pauseContainer(
  {
    containers,
    runtime,
    log,
  }: {
    readonly containers: ContainerRegistry
    readonly runtime: Pick<OciRuntime, 'pause'>
    readonly log: Logger
  },
  { containerId }: PauseContainerRequest,
  { signal, number }: Call,
): Promise<void> {
  const intended = { phase: Phase.PAUSING, request: number } as const
  const update = await beginUpdate(containers, containerId, ['created', 'running'], signal, intended)
  const { interrupted } = update
  const { processes, cgroup } = update.parts
  let after = update.before
  try {
    // The freeze would also catch a runtime that is just adding a process.
    await processes.settled(AbortSignal.any([signal, interrupted]))
    await runtime.pause(update.parts.record.key, interrupted)
    after = 'paused'
  } catch (error) {
    // Some processes may be frozen already.
    await cgroup.thaw().catch((failure) => {
      log.warn('container not thawed', { containerId, error: messageOf(failure) })
    })
    throw error
  } finally {
    update.end(after)
  }
}

export async function resumeContainer(
  {
    containers,
    runtime,
  }: { readonly containers: ContainerRegistry; readonly runtime: Pick<OciRuntime, 'resume'> },
  { containerId }: ResumeContainerRequest,
  { signal, number }: Call,
): Promise<void> {
  const intended = { phase: Phase.RESUMING, request: number } as const
  const update = await beginUpdate(containers, containerId, ['paused'], signal, intended)
  let after = update.before
  try {
    await resumeOrThaw(runtime, update)
    after = update.awaitsStart ? 'created' : 'running'
  } finally {
    update.end(after)
  }
}

/** The runtime times out when the cgroup never becomes frozen; the agent then thaws the cgroup itself. */
async function resumeOrThaw(
  runtime: Pick<OciRuntime, 'resume'>,
  { parts, interrupted }: ContainerUpdate,
): Promise<void> {
  try {
    await runtime.resume(parts.record.key, interrupted)
  } catch (error) {
    if (errnoOf(error) !== 'ETIMEDOUT') throw error
    await parts.cgroup.thaw()
  }
}
