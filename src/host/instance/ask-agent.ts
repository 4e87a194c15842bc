import { AgentError } from '../../base/errors.ts'
import { connectAgent } from '../../client/connection/connect-agent.ts'
import { LifecycleDefinition } from '../../gen/microvm/agent/v1/lifecycle.ts'
import { clientFor, type ServiceClient } from '../../rpc/client.ts'
import type { TtrpcClient } from '../../rpc/ttrpc/client.ts'
import { dialAgent, vsockTaken } from './connect-agent.ts'
import type { MachineInstance } from './instance.ts'

type Lifecycle = ServiceClient<typeof LifecycleDefinition>

/** How long a guest that runs may take to answer a first call, and for one step. */
const REACH_MS = 10_000
export const STEP_MS = 20_000

/** Calls the agent of the guest over a connection of its own. Rejects with DEADLINE_EXCEEDED when it does not answer. */
export async function withAgent<T>(
  instance: MachineInstance,
  work: (agent: Lifecycle, connection: Pick<TtrpcClient, 'call'>) => Promise<T>,
  reachMs = REACH_MS,
): Promise<T> {
  const late = AbortSignal.timeout(reachMs)
  const dialer = { connect: (signal: AbortSignal) => dialAgent(instance, signal) }
  const connection = await connectAgent(dialer, AbortSignal.any([instance.ending, late])).catch((error) => {
    instance.ending.throwIfAborted()
    if (!late.aborted) throw error
    throw new AgentError('DEADLINE_EXCEEDED', `the agent did not answer within ${reachMs} ms`)
  })
  try {
    return await work(clientFor(LifecycleDefinition, connection), connection)
  } finally {
    connection.close()
  }
}

export async function quiesce(instance: MachineInstance, timeoutMs: number): Promise<void> {
  await withAgent(instance, (agent) => agent.quiesce({ timeoutMs }, { timeoutMs: STEP_MS }))
}

/** Returns whether all was still frozen. */
export async function thaw(instance: MachineInstance): Promise<boolean> {
  return (await withAgent(instance, (agent) => agent.thaw({}, { timeoutMs: STEP_MS }))).wasFrozen
}

/** Lets the streams of a guest go on that was not saved. */
export async function attachStreams(instance: MachineInstance): Promise<void> {
  await vsockTaken(instance)
  await withAgent(instance, (agent) => agent.attach({}, { timeoutMs: STEP_MS }))
  instance.recorded.timeline?.answered()
}
