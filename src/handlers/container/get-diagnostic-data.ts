import { AgentError, errnoOf } from '../../base/errors.ts'
import type { GetDiagnosticDataRequest } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'
import type { ContainerRegistry } from './registry.ts'

/** The only log type. */
const TERMINATION_LOG = 'termination_log'
/** The annotation with the path, in the container, of its termination log (Kubernetes). */
const PATH_ANNOTATION = 'io.kubernetes.container.terminationMessagePath'
/** The most bytes of the text, as many as Kubernetes keeps. */
const MAX_BYTES = 4096

/**
 * GetDiagnosticData: the text of a container's termination log, at most 4096 bytes; empty when it has none. The file is
 * the source of a mount. No link on the way to it is followed, because the container may have made it.
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
