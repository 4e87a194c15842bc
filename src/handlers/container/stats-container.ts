import type { StatsContainerRequest, StatsContainerResponse } from '../../gen/agent.ts'
import type { ContainerRegistry } from './registry.ts'
import { invalidContainerId } from './update-container.ts'

/** StatsContainer. It serves stopped containers too, and waits for no transition. */
export async function statsContainer(
  { containers }: { readonly containers: Pick<ContainerRegistry, 'tryGet' | 'unknown'> },
  { containerId }: StatsContainerRequest,
): Promise<StatsContainerResponse> {
  const state = containers.tryGet(containerId)?.state
  if (state === undefined || !('parts' in state)) throw invalidContainerId(containers, containerId)
  return { cgroupStats: await state.parts.cgroup.stats(), networkStats: [] }
}
