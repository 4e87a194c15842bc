import { AgentError } from '../../base/errors.ts'
import { agentOf } from '../../client/container/container-session.ts'
import { containerSpec } from '../../client/container/container-spec.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'

const REHEARSAL = {
  ...{ id: 'microvm-rehearsal', hostname: 'rehearsal', rootPath: '/', cwd: '/' },
  ...{ env: [], user: { uid: 0, gid: 0, additionalGids: [] }, terminal: undefined },
  // Every guest has a runtime. One that has only another still makes most of the container.
  args: ['runc', '--version'],
}
const CALL_MS = 30_000

/** Runs a container, so that clones have in memory what their first one needs. A guest that refuses it becomes a template all the same. */
export async function rehearse(connection: Pick<TtrpcClient, 'call'>, signal: AbortSignal): Promise<void> {
  const agent = agentOf(connection)
  const container = { containerId: REHEARSAL.id }
  const call = { signal, timeoutMs: CALL_MS }
  const refused = (error: unknown) => {
    signal.throwIfAborted()
    if (!(error instanceof AgentError)) throw error
    return false
  }
  const create = agent.createContainer({ ...container, OCI: containerSpec(REHEARSAL) }, call)
  if (!(await create.then(() => true, refused))) return
  const run = agent
    .startContainer(container, call)
    .then(() => agent.waitProcess({ ...container, execId: '' }, call))
  await run.catch(refused)
  await agent.removeContainer(container, call)
}
