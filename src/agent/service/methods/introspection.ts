import { AgentError } from '../../../base/errors.ts'
import type { IntrospectionDefinition } from '../../../gen/microvm/agent/v1/introspection.ts'
import type { GuestDependencies } from '../../../handlers/guest/dependencies.ts'
import { getCapabilities } from '../../introspection/capabilities.ts'
import type { IntrospectionDependencies } from '../../introspection/dependencies.ts'
import { listDevices } from '../../introspection/devices.ts'
import { LoopHistogram } from '../../introspection/loop-histogram.ts'
import { getNetwork } from '../../introspection/network.ts'
import { readOutput } from '../../introspection/output.ts'
import { getStacks, listProcesses } from '../../introspection/processes.ts'
import { Profiles } from '../../introspection/profile.ts'
import { getSandbox, listContainers, listMounts } from '../../introspection/sandbox.ts'
import type { CallsInFlight } from '../calls-in-flight.ts'
import { listCalls, listFailedCalls } from '../list-calls.ts'
import { cancellable, type DeclaredMethod, immediate, type ServiceMethods } from '../rpc.ts'
import { API_VERSION } from './health.ts'

/** What the service tells about itself. */
export interface ServiceView {
  readonly calls: Pick<CallsInFlight, 'failed' | 'list'>
  /** Every method that is served. */
  readonly methods: () => readonly DeclaredMethod<unknown, unknown>[]
}

/** `microvm.agent.v1.Introspection`: what the agent tells about itself and its guest. */
export function introspectionMethods(
  guest: GuestDependencies,
  given: IntrospectionDependencies,
  service: ServiceView,
) {
  const { files, clock } = guest.os
  const { events } = given
  const profiles = new Profiles(guest.os)
  const histogram = new LoopHistogram(clock)
  const recoveryOf = (method: string) => service.methods().find(({ name }) => name === method)?.rpc.recovery
  const calls = (own: string) =>
    listCalls(service.calls, clock.monotonicMs(), recoveryOf).filter(({ method }) => !method.endsWith(own))
  return {
    getVersion: immediate('read', async () => ({
      agentVersion: guest.version,
      apiVersion: API_VERSION,
      nodeVersion: process.version,
    })),
    getCapabilities: cancellable('read', () =>
      getCapabilities({ ...given, files, methods: service.methods().map(({ name }) => name) }),
    ),
    getSandbox: cancellable('read', async () => getSandbox(given)),
    listContainers: cancellable('read', async (request) => listContainers(given, request)),
    listProcesses: cancellable('read', (request) => listProcesses(given, request)),
    listMounts: cancellable('read', () => listMounts(given)),
    listDevices: cancellable('read', () => listDevices(files)),
    getNetwork: cancellable('read', async () => getNetwork(given)),
    // While the agent boots, it tells which calls wait for that.
    listCalls: immediate('read', async () => ({
      calls: calls('Introspection/ListCalls'),
      failed: listFailedCalls(service.calls, clock.monotonicMs()),
    })),
    listExits: cancellable('read', async (request) => events.exits(request)),
    acknowledgeExits: cancellable('idempotent', async (request) => events.acknowledge(request)),
    getEvents: cancellable('read', (request, { signal }) => events.get(request, signal)),
    streamEvents: cancellable<unknown, never>('read', async () => {
      throw new AgentError('UNIMPLEMENTED', 'StreamEvents: not over ttRPC, want GetEvents')
    }),
    getStacks: immediate('read', async () => ({
      ...(await getStacks(given)),
      calls: calls('Introspection/GetStacks'),
    })),
    readProfile: cancellable('idempotent', (request, call) => profiles.read(request, call)),
    getLoopHistogram: cancellable('read', (request, { signal }) => histogram.measure(request, signal)),
    readOutput: cancellable('read', async (request) => readOutput(given, request)),
  } satisfies ServiceMethods<typeof IntrospectionDefinition>
}
