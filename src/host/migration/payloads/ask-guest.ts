import { AgentError } from '../../../base/errors.ts'
import {
  type Container,
  type Device,
  type Exit,
  GetNetworkResponse,
  GetSandboxResponse,
  IntrospectionDefinition,
  ListMountsResponse,
  type Process,
  Process_Role as Role,
} from '../../../gen/microvm/agent/v1/introspection.ts'
import type { StreamTotal } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import { clientFor } from '../../../rpc/client.ts'
import type { TtrpcClient } from '../../../rpc/ttrpc/client.ts'

/** What the agent tells of its guest, as far as this host saves it. */
export interface GuestFacts {
  readonly sandbox: GetSandboxResponse
  readonly containers: readonly Container[]
  /** Those of containers that the agent tracks. */
  readonly processes: readonly Process[]
  readonly exits: readonly Exit[]
  readonly mounts: ListMountsResponse
  readonly devices: readonly Device[]
  readonly network: GetNetworkResponse
  /** As Detach has told them. */
  readonly streams: readonly StreamTotal[]
  /** Names of calls that the guest's policy has refused. */
  readonly refusedCalls: readonly string[]
}

const AT_ONCE = 16

/**
 * Asks the agent what {@link GuestFacts} has. To be called between Detach, whose answer has `streams`, and the end of the
 * connection: no container changes then, but processes may end.
 */
export async function askGuest(
  agent: Pick<TtrpcClient, 'call'>,
  { streams }: { readonly streams: readonly StreamTotal[] },
  signal: AbortSignal,
): Promise<GuestFacts> {
  const calls = clientFor(IntrospectionDefinition, agent)
  const refused: string[] = []
  const ask = async <Answer>(name: string, call: Promise<Answer>, none: Answer): Promise<Answer> => {
    try {
      return await call
    } catch (error) {
      if (!(error instanceof AgentError) || error.code !== 'PERMISSION_DENIED') throw error
      if (!refused.includes(name)) refused.push(name)
      return none
    }
  }
  const options = { signal }
  // The guest waits for this, so all is asked at once.
  const [sandbox, { containers }, mounts, { devices }, network] = await Promise.all([
    ask('GetSandbox', calls.getSandbox({}, options), GetSandboxResponse.create()),
    ask('ListContainers', calls.listContainers({}, options), { containers: [] }),
    ask('ListMounts', calls.listMounts({}, options), ListMountsResponse.create()),
    ask('ListDevices', calls.listDevices({}, options), { devices: [] }),
    ask('GetNetwork', calls.getNetwork({}, options), GetNetworkResponse.create()),
  ])
  const processesOf = async ({ containerId }: Container) => {
    const none = { processes: [], omitted: 0 }
    const answer = await ask('ListProcesses', calls.listProcesses({ containerId }, options), none)
    return trackedIn(containerId, answer)
  }
  const processes: Process[] = []
  for (let at = 0; at < containers.length; at += AT_ONCE) {
    const listed = await Promise.all(containers.slice(at, at + AT_ONCE).map(processesOf))
    processes.push(...listed.flat())
  }
  // After the processes, so that one that has ended since is among them.
  const { exits } = await ask('ListExits', calls.listExits({}, options), { exits: [], dropped: 0n })
  return {
    sandbox,
    containers,
    processes,
    exits,
    mounts,
    devices,
    network,
    streams,
    refusedCalls: refused.toSorted(),
  }
}

/** The agent lists the tracked ones first, and leaves out what is too much. */
function trackedIn(
  container: string,
  { processes, omitted }: { readonly processes: readonly Process[]; readonly omitted: number },
): readonly Process[] {
  const tracked = processes.filter(({ role }) => role === Role.INIT || role === Role.EXEC)
  if (omitted === 0 || tracked.length < processes.length) return tracked
  throw new AgentError('RESOURCE_EXHAUSTED', `container ${container}: more than ${tracked.length} processes`)
}
