import type { PauseContainerRequest, ResumeContainerRequest } from '../../gen/agent.ts'
import type { SandboxContext } from './context.ts'
import { adjust } from './whole-container.ts'

/** PauseContainer (behaviour spec, section C.10): freezes all processes, of a container not yet started too. */
export async function pauseContainer(
  context: SandboxContext,
  { containerId }: PauseContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  await adjust(
    context,
    {
      containerId,
      from: ['created', 'running'],
      work: async ({ processes }) => {
        // A runtime in the middle of adding a process would be frozen with it.
        await processes.settled()
        await context.runtime.pause(containerId)
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
  await adjust(
    context,
    {
      containerId,
      from: ['paused'],
      work: async (_parts, container) => {
        await context.runtime.resume(containerId)
        return container.isParked ? 'created' : 'running'
      },
    },
    signal,
  )
}
