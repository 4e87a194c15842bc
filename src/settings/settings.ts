import { MEM_AGENT_SETTINGS } from './mem-agent-settings.ts'
import {
  agentSetting,
  bareFlag,
  boolean,
  count,
  flag,
  httpEndpoint,
  logLevel,
  nonEmptyText,
  numberIn,
  oneOf,
  peerAddress,
  port,
  processName,
  runtimeName,
  type Setting,
  seconds,
  setting,
  stdioDial,
  text,
  unlessFalse,
} from './setting-types.ts'

/** docs/reference/settings.md shows this table. */
export const SETTINGS = {
  serverAddress: agentSetting('server_addr', {
    environment: 'KATA_AGENT_SERVER_ADDR',
    type: nonEmptyText,
    default: 'vsock://-1:1024',
    doc: 'Where the API is served: `vsock://CID:PORT` (CID -1: any), `unix://PATH`, `unix://@ABSTRACT`, `tcp://HOST:PORT`.',
  }),
  serverPeer: agentSetting('server_peer', {
    type: peerAddress,
    default: '',
    doc: 'With a `tcp://` address: the only IP address that may connect; others are closed. Empty: any.',
  }),
  kernelIp: setting({
    commandLine: 'ip',
    type: text,
    default: '',
    doc: 'With a `tcp://` address: the kernel’s own `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOSTNAME:DEVICE`, for kernels that do not apply it themselves.',
  }),
  vsockAllowLoopback: agentSetting('vsock_allow_loopback', {
    type: flag,
    default: false,
    doc: 'For tests: processes of the guest itself (CID 1) may use the API.',
  }),
  runtime: agentSetting('runtime', {
    type: runtimeName,
    default: 'runc',
    doc: 'The OCI runtime that makes containers: one of the two names or the absolute path of a binary.',
  }),
  containerVsock: agentSetting('container_vsock', {
    type: oneOf('deny', 'allow'),
    default: 'deny',
    doc: 'Whether containers may make vsock sockets, by which they reach ports of the host and take ports of the guest ([security.md](../security.md#vsock)).',
  }),
  processName: agentSetting('process_name', {
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
  logPort: agentSetting('log_vport', {
    type: port,
    default: 0,
    doc: 'Vsock port from which the host reads the log in place of the console ([debug.md](../debug.md#the-log-port)); 0: the log goes to the console.',
  }),
  tracing: setting({
    commandLine: 'agent.trace',
    toml: 'tracing',
    environment: 'KATA_AGENT_TRACING',
    type: flag,
    default: false,
    doc: 'Sends [traces](../debug.md#traces) to port 10240 of the host, where Kata’s forwarder listens.',
  }),
  otlpEndpoint: agentSetting('otlp_endpoint', {
    type: httpEndpoint,
    default: '',
    doc: 'Sends [traces](../debug.md#traces) to this collector, by OTLP over HTTP (JSON); without a path to `/v1/traces`.',
  }),
  devMode: setting({
    commandLine: 'agent.devmode',
    toml: 'dev_mode',
    type: bareFlag,
    default: false,
    doc: 'Help for developers, such as core dumps of containers.',
    hasNoEffect: true,
  }),
  debugConsole: agentSetting('debug_console', {
    type: bareFlag,
    default: false,
    doc: 'A shell for debugging the guest ([debug.md](../debug.md#the-debug-console)).',
  }),
  debugConsolePort: agentSetting('debug_console_vport', {
    type: port,
    default: 0,
    doc: 'Vsock port of the debug console; 0: /dev/console.',
  }),
  hangTimeoutSecs: agentSetting('hang_timeout', {
    type: numberIn(0, 86_400),
    default: 10,
    doc: 'How many seconds the agent may leave a ping of the connection broker unanswered, before it counts as hung and is started again ([broker.md](../broker.md)); 0: for ever. Longer on a machine that emulates the guest.',
  }),
  hotplugTimeoutMs: agentSetting('hotplug_timeout', {
    type: seconds,
    default: 3000,
    doc: 'How long to wait for a device.',
  }),
  metadata: agentSetting('metadata', {
    environment: 'KATA_AGENT_METADATA',
    type: oneOf('off', 'fw_cfg'),
    default: 'fw_cfg',
    doc: 'Where the guest finds its name and addresses at boot: nowhere, or in QEMU’s firmware configuration ([network.md](../network.md#vm-metadata)).',
  }),
  metadataInterface: agentSetting('metadata_interface', {
    environment: 'KATA_AGENT_METADATA_INTERFACE',
    type: text,
    default: '',
    doc: 'The interface that gets these addresses, by its name or MAC address; empty: the only Ethernet interface, or the first.',
  }),
  containerPipeSizeBytes: agentSetting('container_pipe_size', {
    type: count,
    default: 0,
    doc: 'Size in bytes of the pipes of a container’s stdio; 0: 1 MiB for output that goes to a port, else the kernel’s own (64 KiB).',
  }),
  outputReplayBytes: agentSetting('output_replay_bytes', {
    type: numberIn(0, 65_536),
    default: 0,
    doc: 'How many bytes of its last output each stream of a process keeps, for ReadOutput ([debug.md](../debug.md#output-again)); 0: none.',
  }),
  passfdListenerPort: agentSetting('passfd_listener_port', {
    type: port,
    default: 0,
    doc: 'Vsock port on which the host hands over streams of stdio; 0: off.',
  }),
  dialTimeoutMs: agentSetting('dial_timeout', {
    type: seconds,
    default: 2000,
    doc: 'How long to wait for the connection to a port of the host that carries a stream of stdio.',
  }),
  streamGraceMs: agentSetting('stream_grace', {
    type: seconds,
    default: 0,
    doc: 'For how long a stream of stdio waits for another connection when the vsock device is gone ([stdio.md](../stdio.md#when-the-device-goes)); 0: it ends.',
  }),
  streamResume: agentSetting('stream_resume', {
    type: boolean,
    default: false,
    doc: 'Readers of streams of stdio over ports acknowledge what they have, so that a stream goes on without a loss ([stdio.md](../stdio.md#streams-that-resume)).',
  }),
  stdioDial: agentSetting('stdio_dial', {
    type: stdioDial,
    default: { kind: 'vsock' },
    doc: 'Where the ports of streams are: `vsock`, or unix sockets in a folder in their place, for agents without a VM ([stdio.md](../stdio.md)).',
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
  memoryReserve: agentSetting('memory_reserve', {
    type: count,
    default: 64,
    doc: 'Memory in MiB that all containers together leave to the agent and the kernel, at most an eighth of the guest’s ([operate.md](../operate.md#the-memory-of-all-containers)); 0: none.',
  }),
  policyFile: setting({
    toml: 'policy_file',
    environment: 'KATA_AGENT_POLICY_FILE',
    type: text,
    default: '',
    doc: 'File with the policy that requests are checked against ([policy.md](../policy.md)); empty: `/etc/kata-opa/default-policy.rego`, if there is one.',
  }),
  imagePullTimeoutMs: agentSetting('image_pull_timeout', {
    type: seconds,
    default: 1_200_000,
    doc: 'How long an image may take to be pulled in the guest.',
    hasNoEffect: true,
  }),
  cdiTimeoutMs: agentSetting('cdi_timeout', {
    type: seconds,
    default: 100_000,
    doc: 'How long to wait for the CDI specifications of requested devices.',
  }),
  visibleCdiDevices: agentSetting('visible_cdi_devices', {
    type: boolean,
    default: false,
    doc: 'A container’s environment variable VISIBLE_CDI_DEVICES may ask for devices.',
  }),
  cdhApiTimeoutMs: agentSetting('cdh_api_timeout', {
    type: seconds,
    default: 50_000,
    doc: 'How long a call to the confidential data hub may take.',
    hasNoEffect: true,
  }),
  launchProcessTimeoutMs: agentSetting('launch_process_timeout', {
    type: seconds,
    default: 6000,
    doc: 'How long a guest component may take to start.',
    hasNoEffect: true,
  }),
  httpsProxy: agentSetting('https_proxy', {
    type: text,
    default: '',
    doc: 'Proxy that guest components use.',
    hasNoEffect: true,
  }),
  noProxy: agentSetting('no_proxy', {
    type: text,
    default: '',
    doc: 'Hosts that guest components reach without the proxy.',
    hasNoEffect: true,
  }),
  guestComponentsRestApi: agentSetting('guest_components_rest_api', {
    type: oneOf('all', 'attestation', 'resource'),
    default: 'resource',
    doc: 'What the guest components’ REST server offers.',
    hasNoEffect: true,
  }),
  guestComponentsProcs: agentSetting('guest_components_procs', {
    type: oneOf('none', 'attestation-agent', 'confidential-data-hub', 'api-server-rest'),
    default: 'api-server-rest',
    doc: 'The last guest component that is started; each needs the ones before it.',
    hasNoEffect: true,
  }),
  secureStorageIntegrity: agentSetting('secure_storage_integrity', {
    type: boolean,
    default: true,
    doc: 'Encrypted storage is protected against changes too.',
    hasNoEffect: true,
  }),
  ...MEM_AGENT_SETTINGS,
} as const

type ValueOf<Row> = Row extends Setting<infer T> ? T : never

export type AgentConfig = { readonly [Key in keyof typeof SETTINGS]: ValueOf<(typeof SETTINGS)[Key]> }

export type SettingKey = keyof typeof SETTINGS

export const SETTING_KEYS: readonly SettingKey[] = Object.keys(SETTINGS).filter(isSettingKey)

function isSettingKey(name: string): name is SettingKey {
  return Object.hasOwn(SETTINGS, name)
}
