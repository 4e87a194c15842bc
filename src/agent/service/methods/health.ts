import { HealthCheckResponse_ServingStatus, type HealthDefinition } from '../../../gen/health.ts'
import { immediate, type ServiceMethods } from '../rpc.ts'

/** The version of `grpc.AgentService` that Kata's agent answers. */
export const API_VERSION = '0.0.1'

export function healthMethods(agentVersion: string) {
  return {
    check: immediate('read', async () => ({ status: HealthCheckResponse_ServingStatus.SERVING }), LIFE),
    version: immediate('read', async () => ({ grpcVersion: API_VERSION, agentVersion }), LIFE),
  } satisfies ServiceMethods<typeof HealthDefinition>
}

/** A host checks with these calls whether the guest lives. */
const LIFE = { share: 'reserved', rule: 'none', hasSteps: false } as const
