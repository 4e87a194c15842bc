/** `npm run gen` makes docs/reference/metrics.md from these rows. */
export interface MetricRow {
  /** `untyped`: the items of one metric are counters and gauges. */
  readonly type: 'counter' | 'gauge' | 'histogram' | 'untyped'
  readonly help: string
  readonly labels: readonly string[]
}

/** Every metric of GetMetrics, in the order of the answer. Hosts know the names with `kata_` from Kata's agent. */
export const METRICS = {
  kata_agent_scrape_count: counter('Calls of GetMetrics.'),
  kata_agent_threads: gauge('Threads of the agent.'),
  kata_agent_total_time: counter('CPU seconds of the agent.'),
  kata_agent_total_vm: gauge('Virtual memory of the agent in bytes.'),
  kata_agent_total_rss: gauge('Resident memory of the agent in bytes.'),
  kata_agent_proc_stat: counter('CPU ticks of the agent and of its children.', 'item'),
  kata_agent_proc_status: untyped('Memory (kB) and context switches of the agent.', 'item'),
  kata_agent_io_stat: counter('What the agent read and wrote.', 'item'),
  kata_guest_load: gauge('Load of the guest.', 'item'),
  kata_guest_tasks: gauge('Tasks of the guest: running, and all.', 'item'),
  kata_guest_cpu_time: counter('Milliseconds of the CPUs.', 'cpu', 'item'),
  kata_guest_vm_stat: untyped('The lines of /proc/vmstat.', 'item'),
  kata_guest_netdev_stat: counter('Traffic of the interfaces.', 'interface', 'item'),
  kata_guest_diskstat: untyped('Work of the disks; all but in_progress are counters.', 'disk', 'item'),
  kata_guest_meminfo: gauge('Memory of the guest in bytes; huge pages are counted.', 'item'),
  kata_guest_filesystem_bytes: gauge(
    'Bytes of each writable ext4, xfs, btrfs, vfat and overlay file system, once.',
    ...['mount', 'device', 'item'],
  ),
  kata_guest_filesystem_inodes: gauge('Inodes of the same file systems.', 'mount', 'device', 'item'),
  microvm_agent_limit: gauge('Limits of the API over all connections.', 'item'),
  microvm_agent_limit_used: gauge('Use of these limits.', 'item'),
  microvm_agent_restarts_total: counter('Restarts of the agent after it died.'),
  microvm_agent_trace_spans_dropped_total: counter(
    'Trace spans that were not sent, because too many waited or the collector did not take them.',
  ),
  microvm_agent_rpc_duration_seconds: histogram(
    'Time from the arrival of a call to its answer, waits for a process included.',
    'method',
  ),
  microvm_agent_rpc_errors_total: counter('Failed calls.', 'method', 'code'),
  microvm_agent_rpc_in_flight: gauge('Calls that are not over.', 'method'),
  microvm_agent_event_loop_delay_seconds: histogram(
    'Rest of the turn of the event loop in which a call began, which delays other calls. At most 100 turns a second are measured.',
  ),
  microvm_agent_heap_bytes: gauge('Memory of the JavaScript heap, and what it holds outside.', 'kind'),
  microvm_agent_uevents_total: counter('Events about devices that the kernel has sent.'),
  microvm_agent_uevent_failures_total: counter('How often events about devices may have been lost.'),
  microvm_agent_device_wait_seconds: histogram('Waits for devices.', 'outcome'),
  microvm_agent_stdio_bytes_total: counter('Bytes of standard streams that calls have carried.', 'stream'),
  microvm_agent_relayed_bytes_total: counter(
    'Bytes that were relayed between processes and ports, both ways.',
  ),
  microvm_agent_containers: gauge('Containers.', 'state'),
  microvm_agent_containers_without_series: gauge(
    'Containers beyond the first 256: the metrics of containers leave them out.',
  ),
  microvm_container_cpu_seconds_total: counter('CPU time of a container.', 'container'),
  microvm_container_memory_bytes: gauge('Memory of a container, its page cache included.', 'container'),
  microvm_container_pids: gauge('Processes and threads of a container.', 'container'),
  microvm_container_oom_kills_total: counter(
    'Processes of a container that the kernel killed for memory.',
    'container',
  ),
} as const satisfies Readonly<Record<string, MetricRow>>

export type MetricName = keyof typeof METRICS

function counter(help: string, ...labels: readonly string[]): MetricRow {
  return { type: 'counter', help, labels }
}

function gauge(help: string, ...labels: readonly string[]): MetricRow {
  return { type: 'gauge', help, labels }
}

function histogram(help: string, ...labels: readonly string[]): MetricRow {
  return { type: 'histogram', help, labels }
}

function untyped(help: string, ...labels: readonly string[]): MetricRow {
  return { type: 'untyped', help, labels }
}
