import { AgentError, errnoOf } from '../../base/errors.ts'
import type { GetDiagnosticDataRequest } from '../../gen/agent.ts'
import type { SandboxContext } from './context.ts'

/** The only kind of text there is. */
const TERMINATION_LOG = 'termination_log'
/** Where a container leaves its last words, as Kubernetes says (a path in the container). */
const PATH_ANNOTATION = 'io.kubernetes.container.terminationMessagePath'
/** As much as Kubernetes keeps. */
const MAX_BYTES = 4096

/**
 * GetDiagnosticData (behaviour spec, section C.12): what a container wrote to its termination log, at most 4096 bytes.
 * Empty when it has none. The file is the source of a mount, and no link on the way to it is followed: the container
 * may have made it.
 */
export async function getDiagnosticData(
  { containers, os }: SandboxContext,
  { logType, containerId }: GetDiagnosticDataRequest,
): Promise<string> {
  if (logType !== TERMINATION_LOG) {
    throw new AgentError('INVALID_ARGUMENT', `unknown log type '${logType}': there is ${TERMINATION_LOG}`)
  }
  const { Annotations: annotations, Mounts: mounts } = containers.get(containerId, 'INVALID_ARGUMENT').parts
    .spec.current
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
