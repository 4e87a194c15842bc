import type { Server, ServerWritableStream } from '@grpc/grpc-js'
import {
  HealthCheckRequest,
  HealthCheckResponse,
  HealthDefinition,
  HealthListResponse,
} from '../../gen/grpc/health/v1/health.ts'
import { type Method, type MethodTable, serviceNames } from '../method.ts'

/**
 * The unary methods of gRPC's standard health service. The server as a whole and each service of the table are always
 * SERVING: an agent that answers serves.
 */
export function healthMethods(methods: MethodTable): MethodTable {
  const known = knownServices(methods)
  const check: Method = async (payload) => {
    const { service } = HealthCheckRequest.decode(payload)
    if (!known.has(service)) return { ok: false, code: 'NOT_FOUND', message: `unknown service: ${service}` }
    return { ok: true, payload: HealthCheckResponse.encode(SERVING).finish() }
  }
  const list: Method = async () => {
    const statuses = Object.fromEntries([...known].map((service) => [service, SERVING]))
    return { ok: true, payload: HealthListResponse.encode({ statuses }).finish() }
  }
  return new Map([
    [`${HealthDefinition.fullName}/${HealthDefinition.methods.check.name}`, check],
    [`${HealthDefinition.fullName}/${HealthDefinition.methods.list.name}`, list],
  ])
}

/** Serves `Watch`: sends the one state, which never changes, and keeps the stream open as the protocol asks. */
export function registerHealthWatch(server: Server, methods: MethodTable): void {
  const known = knownServices(methods)
  const watch = (call: ServerWritableStream<HealthCheckRequest, HealthCheckResponse>) => {
    call.write(known.has(call.request.service) ? SERVING : SERVICE_UNKNOWN)
  }
  server.register(
    `/${HealthDefinition.fullName}/${HealthDefinition.methods.watch.name}`,
    watch,
    (response: HealthCheckResponse) => Buffer.from(HealthCheckResponse.encode(response).finish()),
    (bytes) => HealthCheckRequest.decode(bytes),
    'serverStream',
  )
}

const SERVING: HealthCheckResponse = { status: 1 }
const SERVICE_UNKNOWN: HealthCheckResponse = { status: 3 }

/** '' is the server as a whole. */
function knownServices(methods: MethodTable): ReadonlySet<string> {
  return new Set(['', ...serviceNames(methods)])
}
