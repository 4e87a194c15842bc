import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import { createContainer } from '../../../handlers/container/create-container.ts'
import { getDiagnosticData } from '../../../handlers/container/get-diagnostic-data.ts'
import { pauseContainer, resumeContainer } from '../../../handlers/container/pause-container.ts'
import { removeContainer } from '../../../handlers/container/remove-container.ts'
import { startContainer } from '../../../handlers/container/start-container.ts'
import { statsContainer } from '../../../handlers/container/stats-container.ts'
import { updateContainer } from '../../../handlers/container/update-container.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { servedWith } from '../../../handlers/sandbox/usable-containers.ts'
import { cancellable, finishing, type ServiceMethods } from '../rpc.ts'

export function containerMethods(sandbox: SandboxContext) {
  const served = servedWith(sandbox)
  return {
    createContainer: cancellable('journaled', served(createContainer), { answeredByRecord: true }),
    startContainer: finishing('journaled', served(startContainer), { answeredByRecord: true }),
    removeContainer: finishing('journaled', served(removeContainer), { share: 'reserved', turn: 'brief' }),
    updateContainer: finishing('idempotent', served(updateContainer)),
    // Journaled, because pausing a paused container fails, as does resuming a running one.
    pauseContainer: finishing('journaled', served(pauseContainer)),
    resumeContainer: finishing('journaled', served(resumeContainer)),
    statsContainer: cancellable('read', served(statsContainer)),
    getDiagnosticData: cancellable('read', async (request, call) => ({
      data: await served(getDiagnosticData)(request, call),
    })),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
