import { containerFigures } from '../handlers/container/container-figures.ts'
import { MOST_CONTAINERS, type OwnFigures } from '../handlers/guest/metrics/own-figures.ts'
import type { SandboxContext } from '../handlers/sandbox/context.ts'
import type { DeviceWaits } from '../hotplug/device-waits.ts'
import type { Os } from '../os/os.ts'
import type { Totals } from '../rpc/limits.ts'
import type { CallsInFlight } from './service/calls-in-flight.ts'

export function ownFigures(parts: {
  readonly os: Os
  readonly totals: Totals
  readonly calls: CallsInFlight
  readonly deviceWaits: DeviceWaits
  readonly sandbox: Pick<SandboxContext, 'containers' | 'carried'>
  readonly restarts: number
  /** Undefined while tracing is off. */
  readonly droppedSpans: (() => number) | undefined
}): OwnFigures {
  const { os, totals, calls, deviceWaits, sandbox, restarts, droppedSpans } = parts
  return {
    limits: () => totals.uses(),
    methods: () => calls.figures.methods(),
    inFlight: () => calls.list().map(({ rpc }) => rpc),
    loopDelay: () => calls.figures.turns,
    deviceWaits: () => deviceWaits.distributions,
    uevents: () => os.uevents.counts(),
    stdioBytes: () => ({ ...sandbox.carried }),
    relayedBytes: () => os.streams.relayedBytes(),
    restarts: () => restarts,
    droppedSpans: () => droppedSpans?.() ?? 0,
    containerStates: () => sandbox.containers.list().map(({ state }) => state.name),
    containers: () => containerFigures(os, sandbox.containers.list().slice(0, MOST_CONTAINERS)),
  }
}
