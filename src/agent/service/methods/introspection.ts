import type { IntrospectionDefinition } from '../../../gen/microvm/agent/v1/introspection.ts'
import type { GuestDependencies } from '../../../handlers/guest/dependencies.ts'
import { immediate, type ServiceMethods } from '../rpc.ts'
import { API_VERSION } from './health.ts'

/** `microvm.agent.v1.Introspection`: what the agent tells about itself and its guest. */
export function introspectionMethods(guest: GuestDependencies) {
  return {
    getVersion: immediate('read', async () => ({
      agentVersion: guest.version,
      apiVersion: API_VERSION,
      nodeVersion: process.version,
    })),
  } satisfies ServiceMethods<typeof IntrospectionDefinition>
}
