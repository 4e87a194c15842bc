import type { UpdateContainerRequest } from '../../gen/agent.ts'
import { checkResources } from '../../oci/check-spec.ts'
import { withExplicitWildcards } from '../../oci/device-rules.ts'
import { printJson } from '../../oci/json.ts'
import { resourcesConfig } from '../../oci/resources-config.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { whileUpdating } from './while-updating.ts'

/**
 * UpdateContainer (behaviour spec, section C.7): sets other limits. Those that the request leaves empty stay; without
 * any it does nothing.
 */
export async function updateContainer(
  context: SandboxContext,
  { containerId, resources: requested }: UpdateContainerRequest,
  signal: AbortSignal,
): Promise<void> {
  if (requested !== undefined) checkResources(requested)
  const resources = requested && withExplicitWildcards(requested)
  await whileUpdating(
    context,
    {
      containerId,
      from: ['created', 'running', 'paused'],
      work: async ({ spec }) => {
        if (resources === undefined) return 'as before'
        await context.runtime.update(containerId, printJson(resourcesConfig(resources)))
        await spec.setResources(resources)
        return 'as before'
      },
    },
    signal,
  )
}
