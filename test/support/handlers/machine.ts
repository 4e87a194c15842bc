import { neverAborted } from '../../../src/base/abort.ts'
import { type Logger, silentLogger } from '../../../src/base/log.ts'
import { CreateContainerRequest, CreateSandboxRequest, ExecProcessRequest } from '../../../src/gen/agent.ts'
import { RenameRequest } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import type { DeepPartial, Process } from '../../../src/gen/oci.ts'
import { ContainersCgroup } from '../../../src/handlers/cgroup/containers-cgroup.ts'
import { createDeviceHandlers } from '../../../src/handlers/device/devices.ts'
import { createSandboxContext, type SandboxContext } from '../../../src/handlers/sandbox/context.ts'
import type { OpenCall } from '../../../src/handlers/sandbox/rename.ts'
import type { SandboxConfig } from '../../../src/handlers/sandbox/sandbox-config.ts'
import type { HostConnectionsConfig } from '../../../src/handlers/stdio/host-connections.ts'
import { createHostConnections } from '../../../src/handlers/stdio/host-connections.ts'
import type { StorageHandlers } from '../../../src/handlers/storage/storage.ts'
import type { Os } from '../../../src/os/os.ts'
import { EventLog } from '../../../src/state/event-log.ts'
import type { RequestSource } from '../../../src/state/request-journal.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { createContainerRequest, execProcessRequest } from '../containers/container-requests.ts'
import { FakeOs } from '../fakes/fake-os.ts'
import { MemoryStateFiles } from '../fakes/files/memory-state-files.ts'
import { boundCalls, type SandboxCalls } from './bound-calls.ts'
import { CDI, hotplugOf } from './device/device-dependencies.ts'
import { FakeRequests } from './fake-requests.ts'
import { FakeRuntime } from './fake-runtime.ts'

const CONFIG: SandboxConfig = {
  runtime: { kind: 'runc', binary: '/usr/sbin/runc' },
  containerPipeSizeBytes: 0,
  streamGraceMs: 0,
  streamResume: false,
  outputReplayBytes: 0,
  sharedRoot: '/run/kata-containers',
  sandboxNamespaceDir: '/run/sandbox-ns',
  containerVsock: 'deny',
  runtimeRoot: '/run/microvm-agent/runtime',
  restarted: false,
}

const STDIO: HostConnectionsConfig = {
  dial: { kind: 'vsock' },
  dialTimeoutMs: 2000,
  listenerPort: 0,
  allowLoopback: false,
  resumes: false,
}

export interface Machine {
  readonly os: FakeOs
  readonly runtime: FakeRuntime
  readonly handlers: SandboxCalls
  readonly context: SandboxContext
  readonly storages: string[]
  /** The state that outlives the agent. */
  readonly state: MemoryStateFiles
  destroyed(): number
  readonly storage: StorageHandlers
  /** Calls that a Rename takes for open. */
  readonly openCalls: OpenCall[]
}

export async function machine(
  options: {
    readonly config?: Partial<SandboxConfig>
    readonly stdio?: Partial<HostConnectionsConfig>
    readonly log?: Logger
    readonly os?: FakeOs
    readonly runtime?: FakeRuntime
    readonly wrap?: (os: Os) => Os
    readonly state?: MemoryStateFiles
    readonly requestSource?: RequestSource
  } = {},
): Promise<Machine> {
  const os = options.os ?? new FakeOs()
  if (options.config?.restarted === true) os.descriptors.restart()
  await furnish(os)
  const runtime = options.runtime ?? new FakeRuntime(os)
  const storages: string[] = []
  const storage = fakeStorage(storages)
  const openCalls: OpenCall[] = []
  let destroyed = 0
  const state = options.state ?? new MemoryStateFiles()
  const log = options.log ?? silentLogger()
  const seen = options.wrap?.(os) ?? os
  const hostConnections = createHostConnections({ os: seen, log, config: { ...STDIO, ...options.stdio } })
  await hostConnections.begin()
  const store = new StateStore(state)
  const context = createSandboxContext({
    os: seen,
    log,
    state: store,
    requestSource: options.requestSource ?? new FakeRequests(),
    events: new EventLog(store, {
      boottimeNs: () => seen.clock.boottimeNs(),
      unixMs: () => 1_700_000_000_000,
    }),
    hostConnections,
    config: { ...CONFIG, ...options.config },
    storage,
    containersCgroup: new ContainersCgroup({ os: seen, log, path: '/containers', reserveMib: 64 }),
    devices: createDeviceHandlers({ os: seen, log, hotplug: hotplugOf(seen), cdi: CDI }),
    onDestroyed: () => {
      destroyed += 1
    },
  })
  return {
    os,
    runtime,
    handlers: boundCalls(context, openCalls),
    openCalls,
    context,
    storages,
    storage,
    state,
    destroyed: () => destroyed,
  }
}

export async function machineWithSandbox(options: Parameters<typeof machine>[0] = {}): Promise<Machine> {
  const made = await machine(options)
  await made.handlers.createSandbox(sandboxRequest(), neverAborted)
  return made
}

export async function machineWithContainer(
  process: DeepPartial<Process> = {},
  options: Parameters<typeof machine>[0] = {},
): Promise<Machine> {
  const made = await machineWithSandbox(options)
  await made.handlers.createContainer(containerRequest('c1', process), neverAborted)
  await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
  return made
}

/** Adds the files of Linux that the handlers read, and the tool that CreateSandbox runs. */
async function furnish(os: FakeOs): Promise<void> {
  const limits = 'Max open files            1048576              1048576              files\n'
  await os.files.put('/proc/self/limits', limits)
  await os.files.put('/proc/sys/fs/nr_open', '1048576\n')
  await os.files.put('/proc/sys/net/core/somaxconn', '128')
  await os.files.put('/etc/resolv.conf', 'nameserver 10.0.0.1\n')
  const folders = ['/sys/fs/cgroup/freezer', '/run/kata-containers', '/run/sandbox-ns', '/run/microvm-agent']
  for (const folder of folders) await os.files.makeDirectories(folder)
  os.tools.script((argv) => (argv[0] === '/sbin/modprobe' ? {} : undefined))
}

function fakeStorage(attached: string[]): StorageHandlers {
  return {
    attach: async (storages) => {
      const mountPoints = storages.map(({ mountPoint }) => mountPoint)
      attached.push(...mountPoints)
      return { mountPoints }
    },
    clear: async () => {
      if (attached.length > 0) throw new Error('storages are in use')
    },
    list: () => [],
    isUsed: (folder) => attached.includes(folder),
    mountPointsOf: (storages) => storages.map(({ mountPoint }) => mountPoint),
    restore: async () => {},
    release: async ({ mountPoints }) => {
      for (const mountPoint of mountPoints) {
        if (!attached.includes(mountPoint)) throw new Error(`storage ${mountPoint}: not in use`)
        attached.splice(attached.indexOf(mountPoint), 1)
      }
    },
  }
}

type PartialContainer = Omit<DeepPartial<CreateContainerRequest>, 'containerId'>

export function sandboxRequest(request: Parameters<typeof CreateSandboxRequest.fromPartial>[0] = {}) {
  return CreateSandboxRequest.fromPartial({ sandboxId: 'pod', hostname: 'pod', ...request })
}

/** A Rename of containers, each to the id that it has here. */
export function renameRequest(
  ids: Readonly<Record<string, string>>,
  request: DeepPartial<RenameRequest> = {},
): RenameRequest {
  const containers = Object.entries(ids).map(([oldId, newId]) => ({ oldId, newId }))
  return RenameRequest.fromPartial({ containers, ...request })
}

export function containerRequest(
  containerId: string,
  process: DeepPartial<Process> = {},
  request: PartialContainer = {},
): CreateContainerRequest {
  const whole = createContainerRequest(containerId, '/images/root', ['sh'], {
    capabilities: ['CAP_KILL'],
    process: { Env: [], ...process },
    linux: { Namespaces: ['mount', 'ipc', 'uts'].map((Type) => ({ Type })) },
  })
  return CreateContainerRequest.fromPartial({ ...whole, ...request })
}

export function execRequest(
  containerId: string,
  execId: string,
  process: DeepPartial<Process> = {},
  request: DeepPartial<ExecProcessRequest> = {},
): ExecProcessRequest {
  const whole = execProcessRequest(containerId, execId, ['ls'], {
    process: { Env: [], Capabilities: undefined, ...process },
  })
  return ExecProcessRequest.fromPartial({ ...whole, ...request })
}

const STREAM_RECORDS = 'stream-records'

/** The cgroup of all containers; it stays until the sandbox is destroyed. */
export const CONTAINERS_CGROUP = '/sys/fs/cgroup/freezer/containers'

/** Everything that a failed call may leave behind, without {@link CONTAINERS_CGROUP}. */
export async function remains({ os, runtime, storages, state }: Machine) {
  return {
    files: (await paths(os, '/')).filter((path) => path !== CONTAINERS_CGROUP),
    mounts: os.mounts.entries.map(({ mountPoint }) => mountPoint),
    // The first stream over a port makes a file for all that follow.
    fds: os.streams.openFds.length - os.streams.openFilesNamed(STREAM_RECORDS).length,
    stored: os.descriptors.stored.filter((name) => name !== STREAM_RECORDS),
    processes: runtime.processes.length,
    watches: os.exits.openWatches,
    keptExits: os.exits.kept.size,
    sleeps: os.clock.sleeping,
    consoles: os.consoles.paths,
    storages: [...storages],
    // Event numbers never go back, even when a call fails.
    state: state.names().filter((name) => name !== 'events'),
    somaxconn: await os.files.readText('/proc/sys/net/core/somaxconn'),
  }
}

async function paths(os: FakeOs, folder: string): Promise<string[]> {
  const found: string[] = []
  for (const name of await os.files.list(folder)) {
    const path = `${folder === '/' ? '' : folder}/${name}`
    found.push(path)
    if ((await os.files.lstat(path))?.kind === 'directory') found.push(...(await paths(os, path)))
  }
  return found
}
