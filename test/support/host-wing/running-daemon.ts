import { join } from 'node:path'
import { type ClientDuplexStream, Metadata, type ServiceError } from '@grpc/grpc-js'
import { AgentError, statusCodeName } from '../../../src/base/errors.ts'
import { type Logger, silentLogger } from '../../../src/base/log.ts'
import { InstanceServiceDefinition } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { SecretServiceDefinition } from '../../../src/gen/microvm/instance/v1/secret.ts'
import { OOBManagementDefinition } from '../../../src/gen/vm.ts'
import { type Configuration, NO_CONFIGURATION } from '../../../src/host/service/configuration.ts'
import { type Daemon, startDaemon } from '../../../src/host/service/daemon.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import { type GrpcClient, grpcClient, grpcConnection } from '../rpc/grpc-client.ts'
import { temporaryFolder } from '../temporary-folder.ts'

export interface DaemonClient {
  readonly instances: Pick<ServiceClient<typeof InstanceServiceDefinition>, UnaryName>
  readonly secrets: ServiceClient<typeof SecretServiceDefinition>
  readonly outOfBand: Pick<ServiceClient<typeof OOBManagementDefinition>, 'reset'>
  readonly grpc: GrpcClient
  /** A call with a stream in its answer, or in both directions. */
  open(method: string, options?: { readonly metadata?: Readonly<Record<string, string>> }): OpenStream
}

type UnaryName = Exclude<
  keyof (typeof InstanceServiceDefinition)['methods'],
  'watchInstances' | 'attach' | 'connectAgent' | 'migrateInstance'
>

export interface OpenStream {
  readonly call: ClientDuplexStream<Uint8Array, Buffer>
  /** What has come so far. */
  readonly answers: readonly Buffer[]
  /** Rejects with an AgentError. */
  readonly ended: Promise<void>
}

export interface RunningDaemon {
  readonly folder: string
  readonly daemon: Daemon
  /** A client of the administrator's socket, or of a tenant's. */
  client(tenant?: string): DaemonClient
  close(): Promise<void>
}

export async function runMockDaemon({
  configuration = NO_CONFIGURATION,
  folder = join(temporaryFolder(), 'state'),
  log = silentLogger(),
}: {
  readonly configuration?: Configuration
  readonly folder?: string
  readonly log?: Logger
} = {}): Promise<RunningDaemon> {
  const daemon = await startDaemon({ stateFolder: folder, configuration, mock: true, log })
  const closers: (() => void)[] = []
  return {
    folder,
    daemon,
    client(tenant) {
      const path = tenant === undefined ? daemon.socket : join(folder, 'tenants', `${tenant}.sock`)
      const client = daemonClient(path)
      closers.push(client.close)
      return client
    },
    async close() {
      for (const close of closers) close()
      await daemon.close()
    },
  }
}

export function daemonClient(path: string): DaemonClient & { close(): void } {
  const connection = grpcConnection(path)
  const grpc = grpcClient(path)
  return {
    instances: clientFor(InstanceServiceDefinition, connection),
    secrets: clientFor(SecretServiceDefinition, connection),
    outOfBand: clientFor(OOBManagementDefinition, connection),
    grpc,
    open: (method, options) => openStream(grpc, method, options),
    close() {
      connection.close()
      grpc.client.close()
    },
  }
}

function openStream(
  { client }: GrpcClient,
  method: string,
  { metadata: pairs = {} }: { readonly metadata?: Readonly<Record<string, string>> } = {},
): OpenStream {
  const metadata = new Metadata()
  for (const [key, value] of Object.entries(pairs)) metadata.set(key, value)
  const call: ClientDuplexStream<Uint8Array, Buffer> = client.makeBidiStreamRequest(
    `/${method}`,
    (bytes: Uint8Array) => Buffer.from(bytes),
    (bytes: Buffer) => bytes,
    metadata,
  )
  const answers: Buffer[] = []
  const ended = new Promise<void>((resolve, reject) => {
    call.on('end', resolve)
    call.on('error', ({ code, details }: ServiceError) =>
      reject(new AgentError(statusCodeName(code), details)),
    )
  })
  ended.catch(() => {})
  call.on('data', (bytes: Buffer) => answers.push(bytes))
  return { call, answers, ended }
}
