import type { Server, ServerWritableStream } from '@grpc/grpc-js'
import { neverAborted } from '../../base/abort.ts'
import { StatusCode } from '../../base/errors.ts'
import {
  HealthCheckRequest,
  HealthCheckResponse,
  HealthDefinition,
  HealthListRequest,
  HealthListResponse,
} from '../../gen/grpc/health/v1/health.ts'
import { type CheckCall, type Method, type MethodTable, serviceNames } from '../method.ts'

/** The unary methods of `grpc.health.v1`. Every service is always SERVING, because an agent that answers can serve. */
export function healthMethods(methods: MethodTable, checkCall: CheckCall): MethodTable {
  const known = knownServices(methods)
  const check: Method = async (payload, { hangup }) => {
    const request = HealthCheckRequest.decode(payload)
    const failure = await checkCall(CHECK, request, hangup)
    if (failure !== undefined) return failure
    const { service } = request
    if (!known.has(service)) return { ok: false, code: 'NOT_FOUND', message: `unknown service: ${service}` }
    return { ok: true, payload: HealthCheckResponse.encode(SERVING).finish() }
  }
  const list: Method = async (payload, { hangup }) => {
    const failure = await checkCall(LIST, HealthListRequest.decode(payload), hangup)
    if (failure !== undefined) return failure
    const statuses = Object.fromEntries([...known].map((service) => [service, SERVING]))
    return { ok: true, payload: HealthListResponse.encode({ statuses }).finish() }
  }
  return new Map([
    [CHECK, { serve: check, share: 'reserved' }],
    [LIST, { serve: list, share: 'ordinary' }],
  ])
}

const CHECK = `${HealthDefinition.fullName}/${HealthDefinition.methods.check.name}`
const LIST = `${HealthDefinition.fullName}/${HealthDefinition.methods.list.name}`
export const WATCH = `${HealthDefinition.fullName}/${HealthDefinition.methods.watch.name}`

/** Sends the one status, which never changes, and keeps the stream open as the protocol requires. */
export function registerHealthWatch(server: Server, methods: MethodTable, checkCall: CheckCall): void {
  const known = knownServices(methods)
  const answer = async (call: ServerWritableStream<HealthCheckRequest, Uint8Array>) => {
    const failure = await checkCall(WATCH, call.request, neverAborted)
    const status = known.has(call.request.service) ? SERVING : SERVICE_UNKNOWN
    if (failure === undefined) call.write(HealthCheckResponse.encode(status).finish())
    else call.emit('error', { code: StatusCode[failure.code], details: failure.message })
  }
  const watch = (call: ServerWritableStream<HealthCheckRequest, Uint8Array>) => void answer(call)
  server.register(
    `/${WATCH}`,
    watch,
    (response: Uint8Array) => Buffer.from(response),
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
