import { errnoOf, messageOf } from '../../base/errors.ts'
import type { PauseContainerRequest, ResumeContainerRequest } from '../../gen/agent.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { whileUpdating } from './while-updating.ts'

/** PauseContainer (behaviour spec, section C.10): freezes all processes, of a container not yet started too. */
export async function pauseContainer(
  context: SandboxContext,
  { containerId }: PauseContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  await whileUpdating(
    context,
    {
      containerId,
      from: ['created', 'running'],
      work: async ({ processes, cgroup }) => {
        // A runtime in the middle of adding a process would be frozen with it.
        await processes.settled()
        try {
          await context.runtime.pause(containerId)
        } catch (error) {
          // Some may be frozen already.
          await cgroup.thaw().catch((failure) => {
            context.log.warn('container not thawed', { containerId, error: messageOf(failure) })
          })
          throw error
        }
        return 'paused'
      },
    },
    signal,
  )
}

/** ResumeContainer (behaviour spec, section C.10): lets the processes of a paused container go on. */
export async function resumeContainer(
  context: SandboxContext,
  { containerId }: ResumeContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  await whileUpdating(
    context,
    {
      containerId,
      from: ['paused'],
      work: async ({ cgroup }, container) => {
        try {
          await context.runtime.resume(containerId)
        } catch (error) {
          if (errnoOf(error) !== 'ETIMEDOUT') throw error
          // It waits until none is frozen any more. Nothing else is left to be done than this.
          await cgroup.thaw()
        }
        return container.awaitsStart ? 'created' : 'running'
      },
    },
    signal,
  )
}
