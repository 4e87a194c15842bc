import { Events } from '../../../src/agent/introspection/events.ts'
import { tellNetwork } from '../../../src/agent/introspection/tell-network.ts'
import { takeIdentity } from '../../../src/agent/lifecycle/identity.ts'
import { Lifecycle } from '../../../src/agent/lifecycle/lifecycle.ts'
import { Policy } from '../../../src/agent/policy/policy.ts'
import type { CallsInFlight } from '../../../src/agent/service/calls-in-flight.ts'
import type { ServiceContext } from '../../../src/agent/service/services.ts'
import { type Logger, silentLogger } from '../../../src/base/log.ts'
import { createMemAgent } from '../../../src/handlers/guest/mem-agent/mem-agent.ts'
import { networkQueues } from '../../../src/handlers/network/context.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { Quiesce } from '../../../src/handlers/quiesce/quiesce.ts'
import type { PolicyEngines } from '../../../src/os/policy/policy-engine.ts'
import { hotplugOf } from '../handlers/device/device-dependencies.ts'
import { MEM_AGENT_DEFAULTS } from '../handlers/guest/mem-agent.ts'
import { noFigures } from '../handlers/guest/own-figures.ts'
import { type Machine, machine } from '../handlers/machine.ts'
import { ROOT } from '../handlers/storage/storage-builder.ts'
import { silentCalls } from './calls-in-flight.ts'

export async function serviceDependencies(
  options: {
    readonly memAgent?: boolean
    /** Without it the image has no policy engine. */
    readonly engines?: PolicyEngines
    readonly log?: Logger
    readonly calls?: CallsInFlight
  } = {},
): Promise<ServiceContext & Pick<Machine, 'os' | 'runtime'>> {
  const { os, runtime, context } = await machine()
  const log = silentLogger()
  const hotplug = hotplugOf(os)
  const policy = new Policy({
    engines: () => options.engines,
    log: options.log ?? log,
    inputLog: undefined,
    state: context.state,
  })
  const record = new NetworkRecord(log, tellNetwork(context.events))
  const network = { os, log, hotplug, record, queues: networkQueues() }
  const { events, containers } = context
  const quiesce = new Quiesce({ os, log, events, containers, ownPaths: [], below: undefined })
  return {
    ...{ os, runtime },
    quiesce,
    policy,
    lifecycle: new Lifecycle({
      ...{
        os,
        log,
        state: context.state,
        events: context.events,
        unixMs: Date.now,
        isFirst: true,
        isInit: true,
      },
      ...{ calls: options.calls ?? silentCalls(), streams: context.ports, frozen: quiesce },
      takeIdentity: (identity, signal) =>
        takeIdentity(
          { os, network, sandbox: context, folder: '/run/microvm-agent/identity' },
          identity,
          signal,
        ),
    }),
    sandbox: context,
    storage: { os, log, allowedRoots: [ROOT] },
    network,
    introspection: {
      ...{ sandbox: context, network: record, quiesce, events: new Events(context.events, os.clock) },
      ...{ restarts: 0, startedMs: 0, features: async () => [], programs: ['/usr/sbin/runc'] },
    },
    guest: {
      ...{ os, log, hotplug, initMode: true, version: '1.2.3' },
      ...{ storageHandlers: [], deviceHandlers: [], supportsPolicy: () => policy.isSupported() },
      supportsSeccomp: context.runtime.seccomp.isSupported,
      ...{ events: context.events, figures: noFigures() },
      memAgent: createMemAgent({
        ...{ os, log, state: context.state, targets: () => [], vminit: '/vminit' },
        config: { ...MEM_AGENT_DEFAULTS, enabled: options.memAgent ?? false },
      }),
    },
  }
}
