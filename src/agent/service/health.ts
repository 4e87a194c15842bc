import type { HealthDefinition } from '../../gen/health.ts'
import { HealthCheckResponse_ServingStatus } from '../../gen/health.ts'
import { immediate, type ServiceEntries } from './entry.ts'

/** Version of the API, as the behaviour spec's section B.4 fixes it. */
const API_VERSION = '0.0.1'

/** `grpc.Health`: answered at once, also while the agent boots. */
export function healthEntries(agentVersion: string): ServiceEntries<typeof HealthDefinition> {
  return {
    check: immediate(async () => ({ status: HealthCheckResponse_ServingStatus.SERVING })),
    version: immediate(async () => ({ grpcVersion: API_VERSION, agentVersion })),
  }
}
