import { Client, credentials, Metadata, type ServiceError } from '@grpc/grpc-js'
import { AgentError, StatusCode, type StatusCodeName } from '../../../src/base/errors.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'

export interface GrpcClient {
  readonly client: Client
  call(
    name: string,
    payload: Uint8Array,
    options?: { readonly deadline?: number; readonly signal?: AbortSignal; readonly metadata?: Metadata },
  ): Promise<Buffer>
}

export function grpcClient(path: string): GrpcClient {
  const unlimited = { 'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1 }
  // Without its own channel, grpc-js would share connections between clients of one address.
  const client = new Client(`unix:${path}`, credentials.createInsecure(), {
    ...unlimited,
    'grpc.use_local_subchannel_pool': 1,
  })
  return {
    client,
    call: (name, payload, { deadline, signal, metadata = new Metadata() } = {}) =>
      new Promise((resolve, reject) => {
        const call = client.makeUnaryRequest(
          `/${name}`,
          (bytes: Uint8Array) => Buffer.from(bytes),
          (bytes: Buffer) => bytes,
          payload,
          metadata,
          deadline === undefined ? {} : { deadline },
          (error: ServiceError | null, response?: Buffer) => {
            if (error === null && response !== undefined) resolve(response)
            else reject(error)
          },
        )
        signal?.addEventListener('abort', () => call.cancel())
      }),
  }
}

/** A gRPC connection for the typed clients: statuses become `AgentError`s, as on ttRPC. */
export function grpcConnection(path: string): Pick<TtrpcClient, 'call' | 'close'> {
  const grpc = grpcClient(path)
  return {
    call: async (service, method, payload, { timeoutMs, signal, metadata: pairs = {} } = {}) => {
      const metadata = new Metadata()
      for (const [key, value] of Object.entries(pairs)) metadata.set(key, value)
      try {
        return await grpc.call(`${service}/${method}`, payload, {
          metadata,
          ...(timeoutMs === undefined ? {} : { deadline: Date.now() + timeoutMs }),
          ...(signal === undefined ? {} : { signal }),
        })
      } catch (error) {
        throw isServiceError(error)
          ? new AgentError(nameOf(error.code), error.details, { cause: error })
          : error
      }
    },
    close: () => grpc.client.close(),
  }
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && 'details' in error && 'code' in error
}

function nameOf(code: number): StatusCodeName {
  return STATUS_NAMES.find((name) => StatusCode[name] === code) ?? 'UNKNOWN'
}

const STATUS_NAMES = Object.keys(StatusCode) as readonly StatusCodeName[]
