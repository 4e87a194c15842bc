import type { StatsContainerRequest, StatsContainerResponse } from '../../gen/agent.ts'
import type { SandboxContext } from '../sandbox/context.ts'
import { unknownWhole } from './while-updating.ts'

/**
 * StatsContainer (behaviour spec, section C.9), of a stopped container too. Waits for nothing but the reading itself,
 * whatever else is done to the container meanwhile.
 */
export async function statsContainer(
  { containers }: SandboxContext,
  { containerId }: StatsContainerRequest,
): Promise<StatsContainerResponse> {
  const state = containers.tryGet(containerId)?.state
  if (state === undefined || !('parts' in state)) throw unknownWhole()
  return { cgroupStats: await state.parts.cgroup.stats(), networkStats: [] }
}
