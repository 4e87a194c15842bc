import type { Sample } from '../../../base/exposition.ts'
import type { Distribution } from '../../../base/histogram.ts'
import type { UeventCounts } from '../../../os/devices/uevents.ts'
import { itemMetric, type Metric, singleMetric } from './exposition.ts'

export interface LimitUse {
  readonly name: string
  readonly limit: number
  readonly used: number
}

export interface MethodFigures {
  readonly rpc: string
  readonly seconds: Distribution
  readonly failures: ReadonlyMap<string, number>
}

/** Figures that cannot be read are undefined. */
export interface ContainerFigures {
  readonly id: string
  readonly cpuSeconds: number | undefined
  readonly memoryBytes: bigint | undefined
  readonly pids: bigint | undefined
  readonly oomKills: bigint
}

/** Each function is a separate source of metrics: the answer leaves out only those that fail. */
export interface OwnFigures {
  limits(): readonly LimitUse[]
  methods(): readonly MethodFigures[]
  /** The full method name of each call under way. */
  inFlight(): readonly string[]
  loopDelay(): Distribution
  deviceWaits(): { readonly found: Distribution; readonly failed: Distribution }
  uevents(): UeventCounts
  stdioBytes(): Readonly<Record<string, number>>
  relayedBytes(): bigint
  restarts(): number
  droppedSpans(): number
  containerStates(): readonly string[]
  containers(): Promise<readonly ContainerFigures[]>
}

/** The most containers with series of their own, which bounds the number of labels. */
export const MOST_CONTAINERS = 256

/** Keyed by the source's name in the log. */
export const OWN_SOURCES: Readonly<Record<string, (figures: OwnFigures) => Metric[] | Promise<Metric[]>>> = {
  limits: (figures) => limitMetrics(figures.limits()),
  restarts: (figures) => [singleMetric('microvm_agent_restarts_total', figures.restarts())],
  spans: (figures) => [singleMetric('microvm_agent_trace_spans_dropped_total', figures.droppedSpans())],
  calls: (figures) => callMetrics(figures.methods()),
  inFlight: (figures) => [counted('microvm_agent_rpc_in_flight', 'method', figures.inFlight())],
  loop: (figures) => [singleMetric('microvm_agent_event_loop_delay_seconds', figures.loopDelay())],
  heap: heapMetrics,
  uevents: (figures) => ueventMetrics(figures.uevents()),
  deviceWaits: (figures) => [
    { name: 'microvm_agent_device_wait_seconds', samples: labelled('outcome', figures.deviceWaits()) },
  ],
  stdio: (figures) => [
    { name: 'microvm_agent_stdio_bytes_total', samples: labelled('stream', figures.stdioBytes()) },
  ],
  relay: (figures) => [singleMetric('microvm_agent_relayed_bytes_total', figures.relayedBytes())],
  states: (figures) => stateMetrics(figures.containerStates()),
  containers: async (figures) => containerMetrics(await figures.containers()),
}

function limitMetrics(limits: readonly LimitUse[]): Metric[] {
  const items = (part: 'limit' | 'used') => limits.map((use) => [use.name, use[part]] as const)
  return [
    itemMetric('microvm_agent_limit', items('limit')),
    itemMetric('microvm_agent_limit_used', items('used')),
  ]
}

function callMetrics(methods: readonly MethodFigures[]): Metric[] {
  const seconds = methods.map(({ rpc, seconds: value }) => ({ labels: { method: rpc }, value }))
  const errors = methods.flatMap(({ rpc, failures }) =>
    [...failures].map(([code, value]) => ({ labels: { method: rpc, code }, value })),
  )
  return [
    { name: 'microvm_agent_rpc_duration_seconds', samples: seconds },
    { name: 'microvm_agent_rpc_errors_total', samples: errors },
  ]
}

function heapMetrics(): Metric[] {
  const { heapUsed, heapTotal, external, arrayBuffers } = process.memoryUsage()
  const samples = labelled('kind', {
    used: heapUsed,
    total: heapTotal,
    external,
    array_buffers: arrayBuffers,
  })
  return [{ name: 'microvm_agent_heap_bytes', samples }]
}

function ueventMetrics({ received, failures }: UeventCounts): Metric[] {
  return [
    singleMetric('microvm_agent_uevents_total', received),
    singleMetric('microvm_agent_uevent_failures_total', failures),
  ]
}

function stateMetrics(states: readonly string[]): Metric[] {
  const leftOut = Math.max(0, states.length - MOST_CONTAINERS)
  return [
    counted('microvm_agent_containers', 'state', states),
    singleMetric('microvm_agent_containers_without_series', leftOut),
  ]
}

function containerMetrics(containers: readonly ContainerFigures[]): Metric[] {
  const each = (value: (container: ContainerFigures) => number | bigint | undefined): Sample[] =>
    containers.flatMap((container) => {
      const found = value(container)
      return found === undefined ? [] : [{ labels: { container: container.id }, value: found }]
    })
  return [
    { name: 'microvm_container_cpu_seconds_total', samples: each(({ cpuSeconds }) => cpuSeconds) },
    { name: 'microvm_container_memory_bytes', samples: each(({ memoryBytes }) => memoryBytes) },
    { name: 'microvm_container_pids', samples: each(({ pids }) => pids) },
    { name: 'microvm_container_oom_kills_total', samples: each(({ oomKills }) => oomKills) },
  ]
}

function labelled(label: string, values: Readonly<Record<string, Sample['value']>>): Sample[] {
  return Object.entries(values).map(([name, value]) => ({ labels: { [label]: name }, value }))
}

function counted(name: Metric['name'], label: string, names: readonly string[]): Metric {
  const counts = new Map<string, number>()
  for (const each of names) counts.set(each, (counts.get(each) ?? 0) + 1)
  return { name, samples: labelled(label, Object.fromEntries(counts)) }
}
