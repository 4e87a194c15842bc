import { ownFigures } from '../../../src/agent/own-figures.ts'
import { checkCallOf, serviceMethods, streamMethods } from '../../../src/agent/service/services.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { SandboxContext } from '../../../src/handlers/sandbox/context.ts'
import { DeviceWaits } from '../../../src/hotplug/device-waits.ts'
import type { ListenAddress } from '../../../src/os/sockets/sockets.ts'
import { Totals } from '../../../src/rpc/limits.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import type { StateStore } from '../../../src/state/state-store.ts'
import type { FakeOs } from '../fakes/fake-os.ts'
import type { FakeRuntime } from '../handlers/fake-runtime.ts'
import { grpcConnection } from '../rpc/grpc-client.ts'
import { silentCalls } from './calls-in-flight.ts'
import { keptOutcomes } from './kept-outcomes.ts'
import { type RunningTransport, runTransport } from './running-transport.ts'
import { serviceDependencies } from './service-dependencies.ts'

export interface RunningServices {
  readonly os: FakeOs
  readonly runtime: FakeRuntime
  readonly sandbox: SandboxContext
  /** The state that outlives the agent. */
  readonly state: StateStore
  readonly path: string
  readonly connections: {
    readonly ttrpc: Pick<TtrpcClient, 'call'>
    readonly grpc: Pick<TtrpcClient, 'call'>
  }
  readonly transport: RunningTransport
  close(): Promise<void>
}

export async function runServices(
  options: Parameters<typeof serviceDependencies>[0] & { readonly address?: ListenAddress } = {},
): Promise<RunningServices> {
  const log = options.log ?? silentLogger()
  const calls = options.calls ?? silentCalls()
  const { os, runtime, ...dependencies } = await serviceDependencies({ ...options, calls })
  const gate = { isOpen: true, wait: async () => {} }
  const totals = new Totals()
  const { sandbox, guest } = dependencies
  const figures = ownFigures({
    ...{ os, totals, calls, sandbox, deviceWaits: new DeviceWaits(), restarts: 0, droppedSpans: undefined },
  })
  const methods = serviceMethods(
    { ...dependencies, guest: { ...guest, figures } },
    { log, gate, calls, totals, outcomes: keptOutcomes(sandbox), nowMs: () => 0 },
  )
  const transport = await runTransport(methods, {
    checkCall: checkCallOf(dependencies.policy),
    streams: streamMethods(dependencies, { gate, calls }),
    ...(options.address && { address: options.address }),
  })
  if (options.address !== undefined) dependencies.lifecycle.begin(transport.transport, 0)
  const grpc = grpcConnection(transport.path)
  return {
    ...{ os, runtime },
    sandbox: dependencies.sandbox,
    state: dependencies.sandbox.state,
    path: transport.path,
    connections: { ttrpc: await transport.dialTtrpc(), grpc },
    transport,
    close: async () => {
      grpc.close()
      await transport.close()
    },
  }
}
