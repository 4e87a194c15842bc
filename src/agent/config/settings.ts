import { LONGEST_TIMER_MS } from '../../base/abort.ts'
import {
  bareFlag,
  boolean,
  count,
  flag,
  logLevel,
  nonEmptyText,
  numberIn,
  oneOf,
  port,
  processName,
  runtimeName,
  type Setting,
  type SettingType,
  seconds,
  stdioDial,
  text,
  unlessFalse,
} from './setting-types.ts'

const MEM_AGENT = 'agent.mem_agent_enable'

const percent = numberIn(0, 100)

/** Seconds that one timer can wait for. */
const periodSecs = numberIn(1, Math.floor(LONGEST_TIMER_MS / 1000))

/** Every setting of the agent (spec A.5 to A.7, and our own). docs/configuration.md shows this table. */
export const SETTINGS = {
  serverAddress: setting({
    commandLine: 'agent.server_addr',
    toml: 'server_addr',
    environment: 'KATA_AGENT_SERVER_ADDR',
    type: nonEmptyText,
    default: 'vsock://-1:1024',
    doc: 'Where the API is served: `vsock://CID:PORT` (CID -1: any), `unix://PATH`, `unix://@ABSTRACT`, `tcp://HOST:PORT`.',
  }),
  kernelIp: setting({
    commandLine: 'ip',
    type: text,
    default: '',
    doc: 'With a `tcp://` address: the kernel’s own `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOSTNAME:DEVICE`, for kernels that do not apply it themselves.',
  }),
  vsockAllowLoopback: setting({
    commandLine: 'agent.vsock_allow_loopback',
    toml: 'vsock_allow_loopback',
    type: flag,
    default: false,
    doc: 'For tests: processes of the guest itself (CID 1) may use the API.',
  }),
  runtime: setting({
    commandLine: 'agent.runtime',
    toml: 'runtime',
    type: runtimeName,
    default: 'runc',
    doc: 'The OCI runtime that makes containers: one of the two names or the absolute path of a binary.',
  }),
  containerVsock: setting({
    commandLine: 'agent.container_vsock',
    toml: 'container_vsock',
    type: oneOf('deny', 'allow'),
    default: 'deny',
    doc: 'Whether containers may make vsock sockets, by which they reach ports of the host and take ports of the guest ([security.md](security.md#vsock)).',
  }),
  processName: setting({
    commandLine: 'agent.process_name',
    toml: 'process_name',
    type: processName,
    default: 'kata-agent',
    doc: 'The name of the agent’s process (`/proc/PID/comm`), by which `pgrep` and test harnesses find it.',
  }),
  logLevel: setting({
    commandLine: 'agent.log',
    toml: 'log_level',
    environment: 'KATA_AGENT_LOG_LEVEL',
    type: logLevel,
    default: 'info',
    doc: 'The least level that is logged: fatal, panic, critical, error, warn, warning, info, debug, trace.',
  }),
  logPort: setting({
    commandLine: 'agent.log_vport',
    toml: 'log_vport',
    type: port,
    default: 0,
    doc: 'Vsock port from which the host reads the log in place of the console ([debugging.md](debugging.md#the-log-port)); 0: the log goes to the console.',
  }),
  tracing: setting({
    commandLine: 'agent.trace',
    toml: 'tracing',
    environment: 'KATA_AGENT_TRACING',
    type: flag,
    default: false,
    doc: 'Export of trace spans.',
    hasNoEffect: true,
  }),
  devMode: setting({
    commandLine: 'agent.devmode',
    toml: 'dev_mode',
    type: bareFlag,
    default: false,
    doc: 'Help for developers, such as core dumps of containers.',
    hasNoEffect: true,
  }),
  debugConsole: setting({
    commandLine: 'agent.debug_console',
    toml: 'debug_console',
    type: bareFlag,
    default: false,
    doc: 'A shell for debugging the guest ([debugging.md](debugging.md#the-debug-console)).',
  }),
  debugConsolePort: setting({
    commandLine: 'agent.debug_console_vport',
    toml: 'debug_console_vport',
    type: port,
    default: 0,
    doc: 'Vsock port of the debug console; 0: /dev/console.',
  }),
  hangTimeoutSecs: setting({
    commandLine: 'agent.hang_timeout',
    toml: 'hang_timeout',
    type: numberIn(0, 86_400),
    default: 10,
    doc: 'How many seconds the agent may leave a ping of the connection broker unanswered, before it counts as hung and is started again ([broker.md](broker.md)); 0: for ever. Longer on a machine that emulates the guest.',
  }),
  hotplugTimeoutMs: setting({
    commandLine: 'agent.hotplug_timeout',
    toml: 'hotplug_timeout',
    type: seconds,
    default: 3000,
    doc: 'How long to wait for a device.',
  }),
  metadata: setting({
    commandLine: 'agent.metadata',
    toml: 'metadata',
    environment: 'KATA_AGENT_METADATA',
    type: oneOf('off', 'fw_cfg'),
    default: 'fw_cfg',
    doc: 'Where the guest finds its name and addresses at boot: nowhere, or in QEMU’s firmware configuration ([vm-metadata.md](vm-metadata.md)).',
  }),
  metadataInterface: setting({
    commandLine: 'agent.metadata_interface',
    toml: 'metadata_interface',
    environment: 'KATA_AGENT_METADATA_INTERFACE',
    type: text,
    default: '',
    doc: 'The interface that gets these addresses, by its name or MAC address; empty: the only Ethernet interface, or the first.',
  }),
  containerPipeSizeBytes: setting({
    commandLine: 'agent.container_pipe_size',
    toml: 'container_pipe_size',
    type: count,
    default: 0,
    doc: 'Size in bytes of the pipes of a container’s stdio; 0: 1 MiB for output that goes to a port, else the kernel’s own (64 KiB).',
  }),
  outputReplayBytes: setting({
    commandLine: 'agent.output_replay_bytes',
    toml: 'output_replay_bytes',
    type: numberIn(0, 65_536),
    default: 0,
    doc: 'How many bytes of its last output each stream of a process keeps, for ReadOutput ([introspection.md](introspection.md#output-again)); 0: none.',
  }),
  passfdListenerPort: setting({
    commandLine: 'agent.passfd_listener_port',
    toml: 'passfd_listener_port',
    type: port,
    default: 0,
    doc: 'Vsock port on which the host hands over streams of stdio; 0: off.',
  }),
  dialTimeoutMs: setting({
    commandLine: 'agent.dial_timeout',
    toml: 'dial_timeout',
    type: seconds,
    default: 2000,
    doc: 'How long to wait for the connection to a port of the host that carries a stream of stdio.',
  }),
  stdioDial: setting({
    commandLine: 'agent.stdio_dial',
    toml: 'stdio_dial',
    type: stdioDial,
    default: { kind: 'vsock' },
    doc: 'Where the ports of streams are: `vsock`, or unix sockets in a folder in their place, for agents without a VM ([stdio.md](stdio.md)).',
  }),
  unifiedCgroupHierarchy: setting({
    commandLine: 'systemd.unified_cgroup_hierarchy',
    toml: 'unified_cgroup_hierarchy',
    type: unlessFalse,
    default: true,
    doc: 'Cgroup v2; `0` or `false` selects v1, if the kernel still has it.',
  }),
  cgroupNoV1: setting({
    commandLine: 'cgroup_no_v1',
    type: text,
    default: '',
    doc: 'What the kernel keeps from cgroup v1: with `all` v2 is used in any case; otherwise controllers, separated by commas, whose limits v1 then cannot set.',
  }),
  memoryReserve: setting({
    commandLine: 'agent.memory_reserve',
    toml: 'memory_reserve',
    type: count,
    default: 64,
    doc: 'Memory in MiB that all containers together leave to the agent and the kernel, at most an eighth of the guest’s ([resources.md](resources.md)); 0: none.',
  }),
  policyFile: setting({
    toml: 'policy_file',
    environment: 'KATA_AGENT_POLICY_FILE',
    type: text,
    default: '',
    doc: 'File with the policy that requests are checked against ([policy.md](policy.md)); empty: `/etc/kata-opa/default-policy.rego`, if there is one.',
  }),
  imagePullTimeoutMs: setting({
    commandLine: 'agent.image_pull_timeout',
    toml: 'image_pull_timeout',
    type: seconds,
    default: 1_200_000,
    doc: 'How long an image may take to be pulled in the guest.',
    hasNoEffect: true,
  }),
  cdiTimeoutMs: setting({
    commandLine: 'agent.cdi_timeout',
    toml: 'cdi_timeout',
    type: seconds,
    default: 100_000,
    doc: 'How long to wait for the CDI specifications of requested devices.',
  }),
  visibleCdiDevices: setting({
    commandLine: 'agent.visible_cdi_devices',
    toml: 'visible_cdi_devices',
    type: boolean,
    default: false,
    doc: 'A container’s environment variable VISIBLE_CDI_DEVICES may ask for devices.',
  }),
  cdhApiTimeoutMs: setting({
    commandLine: 'agent.cdh_api_timeout',
    toml: 'cdh_api_timeout',
    type: seconds,
    default: 50_000,
    doc: 'How long a call to the confidential data hub may take.',
    hasNoEffect: true,
  }),
  launchProcessTimeoutMs: setting({
    commandLine: 'agent.launch_process_timeout',
    toml: 'launch_process_timeout',
    type: seconds,
    default: 6000,
    doc: 'How long a guest component may take to start.',
    hasNoEffect: true,
  }),
  httpsProxy: setting({
    commandLine: 'agent.https_proxy',
    toml: 'https_proxy',
    type: text,
    default: '',
    doc: 'Proxy that guest components use.',
    hasNoEffect: true,
  }),
  noProxy: setting({
    commandLine: 'agent.no_proxy',
    toml: 'no_proxy',
    type: text,
    default: '',
    doc: 'Hosts that guest components reach without the proxy.',
    hasNoEffect: true,
  }),
  guestComponentsRestApi: setting({
    commandLine: 'agent.guest_components_rest_api',
    toml: 'guest_components_rest_api',
    type: oneOf('all', 'attestation', 'resource'),
    default: 'resource',
    doc: 'What the guest components’ REST server offers.',
    hasNoEffect: true,
  }),
  guestComponentsProcs: setting({
    commandLine: 'agent.guest_components_procs',
    toml: 'guest_components_procs',
    type: oneOf('none', 'attestation-agent', 'confidential-data-hub', 'api-server-rest'),
    default: 'api-server-rest',
    doc: 'The last guest component that is started; each needs the ones before it.',
    hasNoEffect: true,
  }),
  secureStorageIntegrity: setting({
    commandLine: 'agent.secure_storage_integrity',
    toml: 'secure_storage_integrity',
    type: boolean,
    default: true,
    doc: 'Encrypted storage is protected against changes too.',
    hasNoEffect: true,
  }),
  memAgentEnable: setting({
    commandLine: MEM_AGENT,
    toml: 'mem_agent_enable',
    type: flag,
    default: false,
    doc: 'Reclaim and compaction of memory. On the kernel command line it stands before the other `mem_agent` keys.',
  }),
  memAgentMemcgDisable: memAgent('memcg_disable', boolean, false, 'No reclaim.'),
  memAgentMemcgSwap: memAgent(
    'memcg_swap',
    boolean,
    false,
    'Reclaim may swap, where the guest has swap space.',
  ),
  memAgentMemcgSwappinessMax: memAgent(
    'memcg_swappiness_max',
    numberIn(0, 200),
    50,
    'The swappiness of a reclaim that may swap.',
  ),
  memAgentMemcgPeriodSecs: memAgent('memcg_period_secs', periodSecs, 600, 'Seconds between two reclaims.'),
  memAgentMemcgPeriodPsiPercentLimit: memAgent(
    'memcg_period_psi_percent_limit',
    percent,
    1,
    'A container with more pressure (%) than this during the period is left alone.',
  ),
  memAgentMemcgEvictionPsiPercentLimit: memAgent(
    'memcg_eviction_psi_percent_limit',
    percent,
    1,
    'Pressure (%) in a container above which the reclaim from it stops.',
  ),
  memAgentMemcgEvictionRunAgingCountMin: memAgent(
    'memcg_eviction_run_aging_count_min',
    count,
    3,
    'Periods in a row without pressure before a container’s memory is reclaimed.',
  ),
  memAgentCompactDisable: memAgent('compact_disable', boolean, false, 'No compaction.'),
  memAgentCompactPeriodSecs: memAgent(
    'compact_period_secs',
    periodSecs,
    600,
    'Seconds between two looks at the free memory.',
  ),
  memAgentCompactPeriodPsiPercentLimit: memAgent(
    'compact_period_psi_percent_limit',
    percent,
    1,
    'Nothing is compacted after a period with more pressure (%) in the guest than this.',
  ),
  memAgentCompactPsiPercentLimit: memAgent(
    'compact_psi_percent_limit',
    percent,
    5,
    'Pressure (%) in the guest above which a compaction stops.',
  ),
  memAgentCompactSecMax: memAgent('compact_sec_max', periodSecs, 300, 'Longest compaction in seconds.'),
  memAgentCompactOrder: memAgent(
    'compact_order',
    numberIn(0, 10),
    9,
    'Free blocks of less than 2^order pages are fragments.',
  ),
  memAgentCompactThreshold: memAgent(
    'compact_threshold',
    count,
    1024,
    'Memory is compacted when fragments have grown by so many pages since the last compaction.',
  ),
  memAgentCompactForceTimes: memAgent(
    'compact_force_times',
    count,
    Number.MAX_SAFE_INTEGER,
    'Periods without a compaction after which one is forced, whatever the fragments.',
  ),
} as const

type ValueOf<Row> = Row extends Setting<infer T> ? T : never

/** The agent's configuration: a value for every setting. */
export type AgentConfig = { readonly [Key in keyof typeof SETTINGS]: ValueOf<(typeof SETTINGS)[Key]> }

/** Name of one setting. */
export type SettingKey = keyof typeof SETTINGS

/** The names of all settings, in the order of the table. */
export const SETTING_KEYS: readonly SettingKey[] = Object.keys(SETTINGS).filter(isSettingKey)

function isSettingKey(name: string): name is SettingKey {
  return Object.hasOwn(SETTINGS, name)
}

function setting<T>(row: Setting<T>): Setting<T> {
  return row
}

function memAgent<T>(name: string, type: SettingType<T>, fallback: T, doc: string): Setting<T> {
  return {
    commandLine: `agent.mem_agent_${name}`,
    toml: `mem_agent_${name}`,
    type,
    default: fallback,
    doc,
    after: MEM_AGENT,
  }
}
