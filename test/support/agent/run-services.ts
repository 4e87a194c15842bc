import { serviceMethods } from '../../../src/agent/service/services.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import type { FakeOs } from '../fakes/fake-os.ts'
import { grpcConnection } from '../rpc/grpc-client.ts'
import { runTransport } from './running-transport.ts'
import { serviceDependencies } from './service-dependencies.ts'

/** All services of a booted agent, on a unix socket and an in-memory machine. */
export interface RunningServices {
  readonly os: FakeOs
  /** A connection for each framing. */
  readonly connections: {
    readonly ttrpc: Pick<TtrpcClient, 'call'>
    readonly grpc: Pick<TtrpcClient, 'call'>
  }
  close(): Promise<void>
}

export async function runServices(
  options: Parameters<typeof serviceDependencies>[0] = {},
): Promise<RunningServices> {
  const { os, ...dependencies } = await serviceDependencies(options)
  const gate = { wait: async () => {} }
  const wrapper = { log: silentLogger(), gate, nowMs: () => 0 }
  const transport = await runTransport(serviceMethods(dependencies, wrapper))
  const grpc = grpcConnection(transport.path)
  return {
    os,
    connections: { ttrpc: await transport.dialTtrpc(), grpc },
    close: async () => {
      grpc.close()
      await transport.close()
    },
  }
}
