import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { jsonLogger, type Logger, type LogSink } from '../base/log.ts'
import { ContainersCgroup } from '../handlers/cgroup/containers-cgroup.ts'
import { createDeviceHandlers } from '../handlers/device/devices.ts'
import { DEVICE_TYPES } from '../handlers/device/handler-table.ts'
import { createMemAgent, type MemAgent } from '../handlers/guest/mem-agent/mem-agent.ts'
import { watchMemory } from '../handlers/guest/memory-watch.ts'
import { type NetworkContext, networkQueues } from '../handlers/network/context.ts'
import { NetworkRecord } from '../handlers/network/network-record.ts'
import { Quiesce } from '../handlers/quiesce/quiesce.ts'
import { createSandboxContext, type SandboxContext } from '../handlers/sandbox/context.ts'
import { destroySandbox } from '../handlers/sandbox/destroy-sandbox.ts'
import { restoreSandbox } from '../handlers/sandbox/restore-sandbox.ts'
import {
  createHostConnections,
  type HostConnections,
  listenerAddress,
} from '../handlers/stdio/host-connections.ts'
import { STORAGE_DRIVER_NAMES } from '../handlers/storage/driver-table.ts'
import { createStorageHandlers, type StorageHandlers } from '../handlers/storage/storage.ts'
import { DeviceDrivers } from '../hotplug/device-drivers.ts'
import { DeviceWaits } from '../hotplug/device-waits.ts'
import { PciBus } from '../hotplug/pci/pci-bus.ts'
import type { Hotplug } from '../hotplug/wait-for-device.ts'
import { type LinuxOs, linuxOs } from '../os/linux-os.ts'
import { findAgentFolder } from '../os/native.ts'
import { writeOut } from '../os/streams/stdout.ts'
import { LIMITS, Totals } from '../rpc/limits.ts'
import type { MethodTable, StreamTable } from '../rpc/method.ts'
import { startTimer } from '../rpc/timer.ts'
import type { AgentConfig } from '../settings/settings.ts'
import { EventLog } from '../state/event-log.ts'
import { NO_CALLER } from '../state/request.ts'
import { StateStore } from '../state/state-store.ts'
import { AFTER_BOOT_MS, bootBehindGate, prepareTransport } from './boot/boot.ts'
import { BootGate } from './boot/gate.ts'
import { STATE_FOLDER } from './boot/state-folder.ts'
import type { BootContext } from './boot/step.ts'
import { type AgentArguments, parseArguments } from './config/arguments.ts'
import { loadConfig } from './config/load-config.ts'
import { DebugConsole } from './console/debug-console.ts'
import { findShells, warnOfMissingShell } from './console/find-shells.ts'
import {
  freezeChoice,
  memAgentConfig,
  OWN_ROOT,
  runtimeChoice,
  SHARED_ROOT,
  sandboxConfig,
} from './handler-config.ts'
import { Events } from './introspection/events.ts'
import { featuresOf, PROGRAMS } from './introspection/features.ts'
import { tellDevices } from './introspection/tell-devices.ts'
import { tellNetwork } from './introspection/tell-network.ts'
import { takeIdentity } from './lifecycle/identity.ts'
import { Lifecycle } from './lifecycle/lifecycle.ts'
import { KeptLines } from './log/kept-lines.ts'
import { LogPort, lostLines, sinkOf } from './log/log-port.ts'
import { logNodeMessages } from './log/node-messages.ts'
import { standardOutput } from './log/standard-output.ts'
import { ownFigures } from './own-figures.ts'
import type { Policy } from './policy/policy.ts'
import { print } from './print.ts'
import { CallsInFlight } from './service/calls-in-flight.ts'
import { KeptOutcomes } from './service/kept-outcomes.ts'
import { checkCallOf, serviceMethods, streamMethods } from './service/services.ts'
import { startPolicy } from './start-policy.ts'
import { stopAgent, stopRequested } from './stop.ts'
import type { Tracing } from './tracing/tracer.ts'
import { tracingIfOn } from './tracing/tracing-if-on.ts'
import { parseServerAddress } from './transport/server-address.ts'
import { startTransport } from './transport/transport.ts'

/** CDI specifications. Their standard folder is /var/run/cdi, and /var/run is a link to /run. */
const CDI_FOLDER = '/run/cdi'

/** The name that ps, pgrep and test harnesses see; Node sets a name of its own. */
const OWN_NAME = '/proc/self/comm'

const RECLAIMABLE: readonly string[] = ['running', 'paused']

export interface AgentStart {
  readonly arguments: readonly string[]
  readonly environment: Record<string, string | undefined>
  /** The running file; its folder holds the agent's other files. */
  readonly file: string
}

interface AgentContext {
  readonly given: AgentArguments
  readonly config: AgentConfig
  /** Absolute path of the folder with the agent's files (docs/architecture.md). */
  readonly agentFolder: string
  readonly os: LinuxOs
  readonly log: Logger
  readonly logPort: LogPort
  readonly gate: BootGate
  readonly networkRecord: NetworkRecord
  /** Saved for the next agent. */
  readonly state: StateStore
  readonly events: EventLog
  readonly drivers: DeviceDrivers
  readonly policy: Policy
  readonly totals: Totals
  /** Undefined while tracing is off. */
  readonly tracing: Tracing | undefined
}

/** The composition root. Resolves with the exit status; throws INVALID_ARGUMENT for wrong arguments or configuration. */
export async function runAgent(start: AgentStart): Promise<number> {
  const given = parseArguments(start.arguments)
  if ('print' in given) {
    print(given.print, start.file)
    return 0
  }
  let level: AgentConfig['logLevel'] = 'info'
  let sink: LogSink = writeOut
  const identity = { version: packageJson.version, pid: process.pid }
  const log = jsonLogger({ sink: (...line) => sink(...line), level: () => level, ...identity })
  logNodeMessages(log, process, console)
  const agentFolder = findAgentFolder(start.file)
  const { channel, broker: brokerFd } = given
  const os = linuxOs({ agentFolder, channel, brokerFd, stateFolder: STATE_FOLDER, log })
  const lostLine = lostLines(identity)
  const output = standardOutput(os.streams, os.stdout, new KeptLines(lostLine))
  sink = output
  const { config, withoutEffect } = await loadConfig({
    ...os,
    environment: start.environment,
    arguments: given,
  })
  level = config.logLevel
  const logPort = new LogPort(os, new KeptLines(lostLine))
  if (config.logPort > 0) sink = sinkOf(logPort, output)
  for (const each of withoutEffect) log.warn('settings without effect', each)
  await os.scratch.write(OWN_NAME, config.processName)
  os.system.reportStackOnSignal()
  const gate = new BootGate()
  const state = new StateStore(os.stateFiles)
  if (given.channel.restarts === 0) state.remove('')
  const events = new EventLog(state, { boottimeNs: os.clock.boottimeNs, unixMs: Date.now })
  const parts = {
    given,
    config,
    os,
    log,
    gate,
    agentFolder,
    logPort,
    state,
    events,
    networkRecord: new NetworkRecord(log, tellNetwork(events), state),
    drivers: new DeviceDrivers(os, log),
    policy: await startPolicy({ agentFolder, config, os, log, gate, state }),
    totals: new Totals(),
    tracing: await tracingIfOn({ config, os, log, service: packageJson }),
  }
  // When the broker breaks its protocol, nothing it sent can be trusted: the agent ends, and vminit starts another.
  return Promise.race([serve(parts, start), os.broker.failed])
}

async function serve(parts: AgentContext, start: AgentStart): Promise<number> {
  const { given, config, os, log, gate, drivers, policy, totals, tracing } = parts
  const destroyed = Promise.withResolvers<void>()
  const service = buildService(parts, destroyed.resolve)
  const context: BootContext = {
    os,
    config,
    log,
    networkRecord: parts.networkRecord,
    environment: start.environment,
  }
  await prepareTransport(context, given.init)
  await service.beginStreams()
  const transport = await startTransport({
    sockets: os.sockets,
    address: parseServerAddress(config.serverAddress),
    methods: service.methods,
    streams: service.streams,
    readDescriptors: () => os.files.readBytes(join(parts.agentFolder, 'descriptors.binpb')),
    checkCall: checkCallOf(policy),
    totals,
    broker: os.broker,
    boottimeNs: os.clock.boottimeNs,
    onBroken: () => service.lifecycle.connectionBroke(),
    hangMs: config.hangTimeoutSecs * 1000,
    allowLoopback: config.vsockAllowLoopback,
    tcpPeer: config.serverPeer,
    log,
  })
  log.info('limits', Object.fromEntries(totals.uses().map(({ name, limit }) => [name, limit])))
  log.info('listening', { address: config.serverAddress, port: transport.port })
  const debugConsole = await openPorts(parts)
  // A request to stop during the boot takes effect after it.
  const requested = stopRequested(os, given, destroyed.promise)
  await bootBehindGate(context, given, gate, service.restore)
  // After the boot, because modprobe takes a while. Outside a guest udev loads drivers.
  if (given.init) drivers.follow()
  if (given.init) tellDevices(os.uevents, parts.events)
  // Outside a guest, memory is brought online only when a call asks for it.
  if (given.init) watchMemory(os, log, service.memoryChanged)
  os.supervisor.gateOpened()
  service.lifecycle.begin(transport, AFTER_BOOT_MS)
  if (given.channel.restarts === 0) void service.warnOfHoles()
  if (config.debugConsole && config.debugConsolePort === 0) void debugConsole.runOn('/dev/console')
  else if (config.debugConsole) void warnOfMissingShell(os.files, log)
  await service.memAgent.start()
  const reason = await requested
  service.memAgent.stop()
  const { destroySandbox } = service
  const closeConsoles = () => debugConsole.close()
  const stopTracing = async () => tracing?.stop()
  return stopAgent({ os, log, given, transport, reason, destroySandbox, closeConsoles, stopTracing })
}

/** Opens the configured ports of the log and the debug console before the boot, because the boot may hang. */
async function openPorts({ given, config, os, log, logPort }: AgentContext): Promise<DebugConsole> {
  const { stdioDial: dial, vsockAllowLoopback: allowLoopback } = config
  if (config.logPort > 0) await logPort.listen(log, listenerAddress(dial, config.logPort), allowLoopback)
  const debugConsole = new DebugConsole({ os, log, allowLoopback, folder: `${OWN_ROOT}/consoles` })
  if (config.debugConsole) await debugConsole.endLeft(given.channel.restarts === 0)
  if (config.debugConsole && config.debugConsolePort > 0)
    await debugConsole.listen(listenerAddress(dial, config.debugConsolePort))
  return debugConsole
}

interface Service {
  readonly methods: MethodTable
  readonly streams: StreamTable
  readonly beginStreams: () => Promise<void>
  /** Restores the state of the previous agent. When it throws, the agent must end. */
  readonly restore: () => Promise<void>
  readonly destroySandbox: () => Promise<void>
  readonly warnOfHoles: () => Promise<void>
  /** To be called after memory went online or offline. */
  readonly memoryChanged: () => Promise<void>
  readonly memAgent: MemAgent
  readonly lifecycle: Lifecycle
}

function buildService(parts: AgentContext, onDestroyed: () => void): Service {
  const { given, config, os, log, gate, policy, totals, tracing } = parts
  const nowMs = os.clock.monotonicMs
  const calls = new CallsInFlight({ log, nowMs, startTimer, tracer: tracing?.tracer })
  const runtime = runtimeChoice(config.runtime)
  const deviceWaits = new DeviceWaits()
  const hotplug = hotplugOf(parts, deviceWaits)
  const mounts = { os, log, allowedRoots: [SHARED_ROOT] }
  const { state, events } = parts
  const storage = createStorageHandlers({ ...mounts, state, events, bundlesRoot: SHARED_ROOT, hotplug })
  const sandbox = sandboxOf(parts, storage, hotplug, onDestroyed)
  const { requests } = sandbox
  const { boottimeNs } = os.clock
  const outcomes = new KeptOutcomes({ state, requests, log, nowMs, boottimeNs, limits: LIMITS.keyed })
  const quiesce = new Quiesce({ os, log, events, containers: sandbox.containers, ...freezeChoice(given) })
  const memAgent = memAgentOf(parts, sandbox)
  const guest = {
    os,
    log,
    initMode: given.init,
    version: packageJson.version,
    storageHandlers: STORAGE_DRIVER_NAMES,
    deviceHandlers: DEVICE_TYPES,
    supportsPolicy: () => policy.isSupported(),
    supportsSeccomp: sandbox.runtime.seccomp.isSupported,
    hotplug,
    memAgent,
    events,
    figures: ownFigures({
      os,
      totals,
      calls,
      sandbox,
      deviceWaits,
      restarts: given.channel.restarts,
      droppedSpans: tracing?.dropped,
    }),
  }
  const network = { os, log, record: parts.networkRecord, hotplug, queues: networkQueues() }
  const lifecycle = lifecycleOf(parts, calls, { network, sandbox, quiesce })
  const introspection = {
    ...{ sandbox, quiesce },
    network: parts.networkRecord,
    events: new Events(events, os.clock),
    ...{ restarts: given.channel.restarts, startedMs: nowMs() },
    features: () => featuresIn(parts, lifecycle),
    programs: [runtime.binary, ...PROGRAMS],
  }
  const dependencies = { sandbox, storage: mounts, network, guest, policy, introspection, lifecycle, quiesce }
  return {
    methods: serviceMethods(dependencies, { log, gate, totals, calls, outcomes, nowMs }),
    streams: streamMethods(dependencies, { gate, calls }),
    beginStreams: sandbox.hostConnections.begin,
    restore: async () => {
      // Not before the boot, which mounts the folder where the event's number is saved.
      events.add({ agentStarted: { restarts: given.channel.restarts } })
      outcomes.read()
      requests.settleAll(policy)
      await restoreSandbox(sandbox)
      await lifecycle.restore()
    },
    destroySandbox: () => quiesce.serve('stop', 'thaw', () => destroySandbox(sandbox, {}, NO_CALLER)),
    warnOfHoles: sandbox.runtime.warnOfHoles,
    memoryChanged: () => sandbox.containersCgroup.limitAgain(),
    memAgent,
    lifecycle,
  }
}

async function featuresIn(parts: AgentContext, lifecycle: Lifecycle) {
  const noShell = (await findShells(parts.os.files)).missing
  return [...featuresOf({ ...parts, noShell }), await lifecycle.clockFeature()]
}

function lifecycleOf(
  { given, os, log, state, events }: AgentContext,
  calls: CallsInFlight,
  guest: { readonly network: NetworkContext; readonly sandbox: SandboxContext; readonly quiesce: Quiesce },
): Lifecycle {
  const identity = { ...guest, os, folder: `${OWN_ROOT}/identity` }
  return new Lifecycle({
    ...{ os, log, state, events, calls, unixMs: Date.now, isInit: given.init },
    isFirst: given.channel.restarts === 0,
    streams: guest.sandbox.ports,
    frozen: guest.quiesce,
    takeIdentity: (wanted, signal) => takeIdentity(identity, wanted, signal),
  })
}

function sandboxOf(
  parts: AgentContext,
  storage: StorageHandlers,
  hotplug: Hotplug,
  onDestroyed: () => void,
): SandboxContext {
  const { given, config, os, log, state, events } = parts
  return createSandboxContext({
    storage,
    onDestroyed,
    containersCgroup: containersCgroupOf(parts),
    hostConnections: hostConnectionsOf(parts),
    os,
    log,
    state,
    events,
    requestSource: os.broker,
    devices: createDeviceHandlers({
      os,
      log,
      hotplug,
      cdi: { folder: CDI_FOLDER, timeoutMs: config.cdiTimeoutMs, readsVariable: config.visibleCdiDevices },
    }),
    config: sandboxConfig(config, given),
  })
}

function memAgentOf(
  { agentFolder, config, os, log, state }: AgentContext,
  sandbox: Pick<SandboxContext, 'containers'>,
): MemAgent {
  return createMemAgent({
    os,
    log,
    config: memAgentConfig(config),
    state,
    targets: () => sandbox.containers.list().filter(({ state }) => RECLAIMABLE.includes(state.name)),
    vminit: join(agentFolder, 'vminit'),
  })
}

function hotplugOf({ os, config, drivers }: AgentContext, waits: DeviceWaits): Hotplug {
  return {
    ...os,
    pciBus: new PciBus(os.files),
    timeoutMs: config.hotplugTimeoutMs,
    drivers,
    waited: (ms, found) => waits.add(ms, found),
  }
}

function containersCgroupOf({ given, config, os, log }: AgentContext): ContainersCgroup {
  // Below another init several agents may run. Each has a vminit of its own, whose pid outlives the agent.
  const path = given.init ? '/containers' : `/containers-${process.ppid}`
  return new ContainersCgroup({ os, log, path, reserveMib: config.memoryReserve })
}

function hostConnectionsOf({ config, os, log }: AgentContext): HostConnections {
  return createHostConnections({
    os,
    log,
    config: {
      dial: config.stdioDial,
      dialTimeoutMs: config.dialTimeoutMs,
      listenerPort: config.passfdListenerPort,
      allowLoopback: config.vsockAllowLoopback,
      resumes: config.streamResume,
    },
  })
}
