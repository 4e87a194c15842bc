import { AgentError } from '../base/errors.ts'
import type { Process } from '../gen/oci.ts'
import { nofileOf, withNofile } from './rlimits.ts'

/**
 * A process to add to a container. Missing capabilities and RLIMIT_NOFILE are inherited from the container's first
 * process. Throws INTERNAL when there are no capabilities to inherit.
 */
export function inheritProcess(requested: Process, first: Process): Process {
  const capabilities = requested.Capabilities ?? first.Capabilities
  if (capabilities === undefined) {
    throw new AgentError(
      'INTERNAL',
      'the process names no capabilities and the container has none to inherit',
    )
  }
  return {
    ...requested,
    Capabilities: capabilities,
    Rlimits: withNofile(requested.Rlimits, nofileOf(first.Rlimits)),
  }
}
