import { AgentError, errnoOf } from '../../base/errors.ts'
import type { GetDiagnosticDataRequest } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import type { ContainerRegistry } from './registry.ts'

const TERMINATION_LOG = 'termination_log'
/** Kubernetes' annotation with the path of the termination log in the container. */
const PATH_ANNOTATION = 'io.kubernetes.container.terminationMessagePath'
/** Kubernetes keeps no more bytes. */
const MAX_BYTES = 4096

/**
 * GetDiagnosticData: the first 4096 bytes of a container's termination log, which is the source of a mount; empty without
 * one. Symbolic links on the way to it are not followed, because the container may have made them.
 */
export async function getDiagnosticData(
  { containers, os }: { readonly containers: Pick<ContainerRegistry, 'get'>; readonly os: Pick<Os, 'files'> },
  { logType, containerId }: GetDiagnosticDataRequest,
): Promise<string> {
  if (logType !== TERMINATION_LOG) {
    throw new AgentError('INVALID_ARGUMENT', `log_type: unknown type '${logType}', want ${TERMINATION_LOG}`)
  }
  const { parts } = containers.get(containerId, 'INVALID_ARGUMENT')
  const { Annotations: annotations, Mounts: mounts } = parts.spec.current
  const path = annotations[PATH_ANNOTATION]
  const source = mounts.find(({ destination }) => destination === path)?.source
  if (source === undefined || !source.startsWith('/')) return ''
  try {
    return Buffer.from(await os.files.readHead(source, MAX_BYTES)).toString('utf8')
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return ''
    throw error
  }
}
