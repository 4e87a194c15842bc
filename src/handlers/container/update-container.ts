import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { UpdateContainerRequest } from '../../gen/agent.ts'
import type { LinuxResources } from '../../gen/oci.ts'
import { checkResources } from '../../oci/check/check-spec.ts'
import { supportedResources } from '../../oci/guest-support.ts'
import { printJson } from '../../oci/json.ts'
import { normalizeResources } from '../../oci/normalize-spec.ts'
import { withExplicitWildcards } from '../../oci/resources.ts'
import { resourcesConfig } from '../../oci/runtime-config.ts'
import { usesCgroupV2 } from '../../os/cgroup/hierarchies.ts'
import type { Os } from '../../os/os.ts'
import type { Call } from '../../state/request.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { logDeviation } from '../process/log-deviation.ts'
import type { ContainerUpdate, IntendedUpdate, LivingState } from './container.ts'
import { hugePageSizes } from './guest-support.ts'
import type { ContainerRegistry } from './registry.ts'

export interface UpdateContext {
  readonly os: Os
  readonly log: Logger
  readonly containers: ContainerRegistry
  readonly runtime: Pick<OciRuntime, 'update'>
}

/** UpdateContainer: changes limits. Limits that the request leaves empty stay; without any it does nothing. */
export async function updateContainer(
  dependencies: UpdateContext,
  request: UpdateContainerRequest,
  { signal }: Call,
): Promise<void> {
  const { containers, runtime } = dependencies
  const { containerId } = request
  const resources = await resourcesOf(dependencies, request)
  const update = await beginUpdate(containers, containerId, ['created', 'running', 'paused'], signal)
  try {
    if (resources === undefined) return
    const { record, spec } = update.parts
    await runtime.update(record.key, printJson(resourcesConfig(resources)), update.interrupted)
    await spec.setResources(resources)
  } finally {
    update.end(update.before)
  }
}

/** The limits of a request that this guest can set. Throws INVALID_ARGUMENT for invalid limits. */
async function resourcesOf(
  { os, log }: UpdateContext,
  { containerId, resources: requested }: UpdateContainerRequest,
): Promise<LinuxResources | undefined> {
  if (requested === undefined) return undefined
  const resources = normalizeResources(requested)
  checkResources(resources)
  const sizes = await hugePageSizes(os, await usesCgroupV2(os), resources)
  const onDeviation = logDeviation(log, 'warn', { containerId })
  return withExplicitWildcards(supportedResources(resources, sizes, onDeviation))
}

/**
 * Begins a pause, a resume or a change of limits once no transition of the container is under way. Throws INVALID_ARGUMENT
 * `invalid container id`, or INTERNAL when the container is in none of the states `from`.
 */
export async function beginUpdate(
  containers: Pick<ContainerRegistry, 'tryGet' | 'unknown'>,
  containerId: string,
  from: readonly LivingState[],
  signal: AbortSignal,
  intended?: IntendedUpdate,
): Promise<ContainerUpdate> {
  const container = containers.tryGet(containerId)
  if (container === undefined) throw invalidContainerId(containers, containerId)
  while (container.isInTransition) await container.changed(container.state, signal)
  if (container.state.name === 'gone') throw invalidContainerId(containers, containerId)
  return container.beginUpdate(from, intended)
}

/** The error of updates and statistics for a container that does not exist. */
export function invalidContainerId(containers: Pick<ContainerRegistry, 'unknown'>, id: string): AgentError {
  const error = containers.unknown(id, 'INVALID_ARGUMENT')
  return error.code === 'NOT_FOUND' ? error : new AgentError('INVALID_ARGUMENT', 'invalid container id')
}
