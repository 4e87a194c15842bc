import { AgentError } from '../../../base/errors.ts'
import type { IntrospectionDefinition } from '../../../gen/microvm/agent/v1/introspection.ts'
import type { GuestDependencies } from '../../../handlers/guest/dependencies.ts'
import { cancellable, immediate, type ServiceMethods } from '../rpc.ts'
import { API_VERSION } from './health.ts'

/** `microvm.agent.v1.Introspection`: what the agent tells about itself and its guest. */
export function introspectionMethods(guest: GuestDependencies) {
  return {
    getVersion: immediate('read', async () => ({
      agentVersion: guest.version,
      apiVersion: API_VERSION,
      nodeVersion: process.version,
    })),
    getCapabilities: missing('GetCapabilities'),
    getSandbox: missing('GetSandbox'),
    listContainers: missing('ListContainers'),
    listProcesses: missing('ListProcesses'),
    listMounts: missing('ListMounts'),
    listDevices: missing('ListDevices'),
    getNetwork: missing('GetNetwork'),
    listCalls: missing('ListCalls'),
    listExits: missing('ListExits'),
    acknowledgeExits: missing('AcknowledgeExits'),
    getEvents: missing('GetEvents'),
    streamEvents: missing('StreamEvents'),
    getStacks: missing('GetStacks'),
    readProfile: missing('ReadProfile'),
    getLoopHistogram: missing('GetLoopHistogram'),
    readOutput: missing('ReadOutput'),
  } satisfies ServiceMethods<typeof IntrospectionDefinition>
}

/** An RPC that the interface has, and this agent does not. */
function missing(method: string) {
  return cancellable<unknown, never>('read', async () => {
    throw new AgentError('UNIMPLEMENTED', `microvm.agent.v1.Introspection/${method}: not implemented`)
  })
}
