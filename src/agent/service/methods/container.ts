import type { AgentServiceDefinition } from '../../../gen/agent.ts'
import { createContainer } from '../../../handlers/container/create-container.ts'
import { getDiagnosticData } from '../../../handlers/container/get-diagnostic-data.ts'
import { pauseContainer, resumeContainer } from '../../../handlers/container/pause-container.ts'
import { removeContainer } from '../../../handlers/container/remove-container.ts'
import { startContainer } from '../../../handlers/container/start-container.ts'
import { statsContainer } from '../../../handlers/container/stats-container.ts'
import { updateContainer } from '../../../handlers/container/update-container.ts'
import type { SandboxContext } from '../../../handlers/sandbox/context.ts'
import { usableContainers } from '../../../handlers/sandbox/usable-containers.ts'
import { cancellable, finishing, type ServiceMethods } from '../rpc.ts'

/** The RPCs of containers (spec C.1 to C.3, C.7, C.9, C.10, C.12). */
export function containerMethods(sandbox: SandboxContext) {
  const usable = () => usableContainers(sandbox)
  return {
    createContainer: cancellable('journaled', async (request, call) =>
      createContainer(usable(), request, call),
    ),
    startContainer: finishing('journaled', async (request, call) => startContainer(usable(), request, call)),
    removeContainer: finishing(
      'journaled',
      async (request, call) => removeContainer(usable(), request, call),
      { share: 'reserved', turn: 'brief' },
    ),
    updateContainer: finishing('idempotent', async (request, { signal }) =>
      updateContainer(usable(), request, signal),
    ),
    // Journaled: a container that is paused already refuses to be paused, as one that runs refuses to be resumed.
    pauseContainer: finishing('journaled', async (request, call) => pauseContainer(usable(), request, call)),
    resumeContainer: finishing('journaled', async (request, call) =>
      resumeContainer(usable(), request, call),
    ),
    statsContainer: cancellable('read', async (request) => statsContainer(usable(), request)),
    getDiagnosticData: cancellable('read', async (request) => ({
      data: await getDiagnosticData(usable(), request),
    })),
  } satisfies Partial<ServiceMethods<typeof AgentServiceDefinition>>
}
