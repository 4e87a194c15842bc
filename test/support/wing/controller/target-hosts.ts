import {
  type Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js'
import {
  HealthCheckResponse,
  HealthCheckResponse_ServingStatus,
  HealthDefinition,
} from '../../../../src/gen/grpc/health/v1/health.ts'
import {
  EnsureInstanceRequest,
  GetInstanceRequest,
  Instance,
  InstanceServiceDefinition,
  RemoveRequest,
  RemoveResponse,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Credentials } from '../../../../src/host/tls/credentials.ts'
import { TRACEPARENT } from '../../../../src/rpc/traceparent.ts'

/** A host of gRPC's own library that has instances which await their VMs. */
export interface TargetHost {
  readonly endpoint: string
  /** Keys of the instances. */
  readonly instances: Set<string>
  readonly requests: EnsureInstanceRequest[]
  /** The trace context of the last EnsureInstance. */
  traceparent: string | undefined
  /** What EnsureInstance answers from now on in place of an instance. */
  refusal: { readonly code: status; readonly details: string } | undefined
  /** How many health checks fail from now on. */
  unhealthy: number
  end(): void
}

export async function startTargetHost(
  { pem: { ca, cert, key } }: Credentials,
  port = 0,
): Promise<TargetHost> {
  const server = new Server()
  const pair = [{ cert_chain: Buffer.from(cert), private_key: Buffer.from(key) }]
  const credentials = ServerCredentials.createSsl(Buffer.from(ca), pair, true)
  const host: Omit<TargetHost, 'endpoint'> = {
    instances: new Set(),
    requests: [],
    traceparent: undefined,
    refusal: undefined,
    unhealthy: 0,
    end: () => server.forceShutdown(),
  }
  const instance = (instanceKey: string, awaiting: { readonly source: string }) =>
    Instance.encode(
      Instance.fromPartial({ properties: { key: instanceKey }, state: State.AWAITING, awaiting }),
    ).finish()
  const answers: Readonly<Record<string, (payload: Uint8Array, metadata: Metadata) => Uint8Array>> = {
    [`${InstanceServiceDefinition.fullName}/EnsureInstance`]: (payload, metadata) => {
      host.traceparent = metadata.get(TRACEPARENT)[0]?.toString()
      const request = EnsureInstanceRequest.decode(payload)
      host.requests.push(request)
      if (host.refusal !== undefined) throw failure(host.refusal)
      host.instances.add(request.properties?.key ?? '')
      return instance(request.properties?.key ?? '', { source: request.migrationTarget?.source ?? '' })
    },
    [`${InstanceServiceDefinition.fullName}/GetInstance`]: (payload) => {
      const { key: asked } = GetInstanceRequest.decode(payload)
      if (!host.instances.has(asked)) throw failure({ code: status.NOT_FOUND, details: asked })
      return instance(asked, { source: '' })
    },
    [`${InstanceServiceDefinition.fullName}/Remove`]: (payload) => {
      host.instances.delete(RemoveRequest.decode(payload).key)
      return RemoveResponse.encode({}).finish()
    },
    [`${HealthDefinition.fullName}/Check`]: () => {
      const { NOT_SERVING, SERVING } = HealthCheckResponse_ServingStatus
      const isHealthy = host.unhealthy === 0
      if (!isHealthy) host.unhealthy -= 1
      return HealthCheckResponse.encode({ status: isHealthy ? SERVING : NOT_SERVING }).finish()
    },
  }
  for (const [name, answer] of Object.entries(answers)) {
    const handle = (call: ServerUnaryCall<Buffer, Uint8Array>, callback: sendUnaryData<Uint8Array>) => {
      try {
        callback(null, answer(call.request, call.metadata))
      } catch (error) {
        callback(error as { code: status; details: string })
      }
    }
    server.register(
      `/${name}`,
      handle,
      (bytes: Uint8Array) => Buffer.from(bytes),
      (bytes: Buffer) => bytes,
      'unary',
    )
  }
  const bound = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${port}`, credentials, (error, own) => (error ? reject(error) : resolve(own)))
  })
  return Object.assign(host, { endpoint: `127.0.0.1:${bound}` })
}

function failure(given: { readonly code: status; readonly details: string }): Error {
  return Object.assign(new Error(given.details), given)
}
