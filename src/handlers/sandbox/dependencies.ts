import type { Logger } from '../../base/log.ts'
import type { ContainerVsock } from '../../oci/denied-calls.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { RequestSource } from '../../state/request-journal.ts'
import type { StateStore } from '../../state/state-store.ts'
import type { ContainersCgroup } from '../cgroup/containers-cgroup.ts'
import type { DeviceHandlers } from '../device/devices.ts'
import type { HostConnections } from '../stdio/host-connections.ts'
import type { StorageHandlers } from '../storage/storage.ts'

/** Everything the sandbox and its containers are built from. */
export interface SandboxDependencies {
  readonly os: Os
  readonly log: Logger
  /** What outlives the agent. */
  readonly state: StateStore
  /** Where the requests of previous agents are known. */
  readonly requestSource: RequestSource
  /** What has happened, as GetEvents and ListExits tell it. */
  readonly events: EventLog
  readonly config: SandboxConfig
  readonly storage: StorageHandlers
  readonly containersCgroup: ContainersCgroup
  /** Connections with the host for streams whose request names a port. */
  readonly hostConnections: HostConnections
  /** Called once DestroySandbox has undone everything, before its answer is sent. Must not throw. */
  readonly onDestroyed: () => void
  readonly devices: DeviceHandlers
}

/** The settings of the sandbox; all paths are absolute. */
export interface SandboxConfig {
  readonly runtime: RuntimeChoice
  /** Whether containers whose annotations do not say may make sockets of AF_VSOCK. */
  readonly containerVsock: ContainerVsock
  /** F_SETPIPE_SZ of stdio pipes; 0 keeps the kernel's size. */
  readonly containerPipeSizeBytes: number
  /** How many bytes of its last output each stream keeps; 0: none. */
  readonly outputReplayBytes: number
  /** Bundles and shared folders, `/run/kata-containers` in a guest. CreateSandbox empties it. */
  readonly sharedRoot: string
  /** Where the sandbox's namespaces are pinned, `/run/sandbox-ns` in a guest. */
  readonly sandboxNamespaceDir: string
  /** The agent's own folder for the runtime's state and scratch files. A short path, because sockets lie in it. */
  readonly runtimeRoot: string
  /** True when this agent was started after another one died. */
  readonly restarted: boolean
}

/** Where the pid namespace that containers without a sandbox may share is pinned. */
export function ownNamespaces({ runtimeRoot }: Pick<SandboxConfig, 'runtimeRoot'>): string {
  return `${runtimeRoot}/namespaces`
}

/** Which OCI runtime program makes the containers. */
export interface RuntimeChoice {
  readonly kind: 'runc' | 'crun'
  /** Absolute path of the program. */
  readonly binary: string
}
