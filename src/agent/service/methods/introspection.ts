import { AgentError } from '../../../base/errors.ts'
import type { IntrospectionDefinition } from '../../../gen/microvm/agent/v1/introspection.ts'
import type { GuestContext } from '../../../handlers/guest/context.ts'
import { usableContainers } from '../../../handlers/sandbox/usable-containers.ts'
import { getCapabilities } from '../../introspection/capabilities.ts'
import type { IntrospectionContext } from '../../introspection/context.ts'
import { listDevices } from '../../introspection/devices.ts'
import { LoopHistogram } from '../../introspection/loop-histogram.ts'
import { getNetwork } from '../../introspection/network.ts'
import { readOutput } from '../../introspection/output.ts'
import { getStacks, listProcesses } from '../../introspection/processes.ts'
import { Profiles } from '../../introspection/profile.ts'
import { getSandbox, listContainers, listMounts } from '../../introspection/sandbox.ts'
import type { CallsInFlight } from '../calls-in-flight.ts'
import { listCalls, listFailedCalls } from '../list-calls.ts'
import { cancellable, type DeclaredMethod, immediate, NO_DISK, type ServiceMethods } from '../rpc.ts'
import { API_VERSION } from './health.ts'

export interface ServiceView {
  readonly calls: Pick<CallsInFlight, 'failed' | 'list'>
  readonly methods: () => readonly DeclaredMethod<unknown, unknown>[]
}

export function introspectionMethods(guest: GuestContext, given: IntrospectionContext, service: ServiceView) {
  const { files, clock } = guest.os
  const { events, sandbox } = given
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
    getCapabilities: cancellable(
      'read',
      () => getCapabilities({ ...given, files, methods: service.methods().map(({ name }) => name) }),
      BRIEF,
    ),
    getSandbox: cancellable('read', async () => getSandbox(given), BRIEF),
    listContainers: cancellable('read', async (request) => listContainers(given, request), BRIEF),
    listProcesses: cancellable('read', (request) => listProcesses(given, request), BRIEF),
    listMounts: cancellable('read', () => listMounts(given), BRIEF),
    listDevices: cancellable('read', () => listDevices(files), BRIEF),
    getNetwork: cancellable('read', async () => getNetwork(given), BRIEF),
    // Immediate, so that it also lists the calls that wait for the boot.
    listCalls: immediate('read', async () => ({
      calls: calls('Introspection/ListCalls'),
      failed: listFailedCalls(service.calls, clock.monotonicMs()),
    })),
    listExits: cancellable('read', async (request) => events.exits(request), BRIEF),
    acknowledgeExits: cancellable('idempotent', async (request) => events.acknowledge(request), {
      ...NO_DISK,
      ...BRIEF,
    }),
    getEvents: cancellable('read', (request, { signal }) => events.get(request, signal), WAIT),
    streamEvents: cancellable<unknown, never>(
      'read',
      async () => {
        throw new AgentError('UNIMPLEMENTED', 'StreamEvents: not over ttRPC, want GetEvents')
      },
      WAIT,
    ),
    getStacks: immediate('read', async () => ({
      ...(await getStacks(given)),
      calls: calls('Introspection/GetStacks'),
    })),
    readProfile: cancellable('idempotent', (request, call) => profiles.read(request, call), {
      ...NO_DISK,
      ...WAIT,
    }),
    getLoopHistogram: cancellable('read', (request, { signal }) => histogram.measure(request, signal), WAIT),
    // A caller that may read the output may read it again, so the rule is the same.
    readOutput: cancellable('read', async (request) => readOutput(given, request), {
      turn: 'brief',
      rule: { message: 'grpc.ReadStreamRequest' },
    }),
    signalOnHangup: cancellable(
      'idempotent',
      (request, call) => sandbox.hangups.wait(usableContainers(sandbox), request, call),
      { ...NO_DISK, turn: 'wait', rule: { message: 'grpc.SignalProcessRequest' }, key: 'refused' },
    ),
  } satisfies ServiceMethods<typeof IntrospectionDefinition>
}

/** Calls that report on the agent's work must not queue behind it. */
const BRIEF = { turn: 'brief' } as const
const WAIT = { turn: 'wait' } as const
