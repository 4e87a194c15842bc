import { errnoOf, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { PauseContainerRequest, ResumeContainerRequest } from '../../gen/agent.ts'
import type { Call } from '../../state/request.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import type { ContainerUpdate } from './container.ts'
import { Phase } from './container-record.ts'
import type { ContainerRegistry } from './registry.ts'
import { beginUpdate } from './update-container.ts'

/** PauseContainer: freezes all processes, also of a container that awaits its start. */
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
    // A runtime that is adding a process would be frozen with it.
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

/** ResumeContainer: thaws the processes of a paused container. */
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

/** The runtime may wait for the end of the freeze without success; then only the thaw is left to do. */
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
