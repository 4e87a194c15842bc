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

export interface SandboxEnvironment {
  readonly os: Os
  readonly log: Logger
  readonly state: StateStore
  readonly requestSource: RequestSource
  readonly events: EventLog
  readonly config: SandboxConfig
  readonly storage: StorageHandlers
  readonly containersCgroup: ContainersCgroup
  /** For streams whose request names a port. */
  readonly hostConnections: HostConnections
  /** Called once DestroySandbox has undone everything, before its answer is sent. Must not throw. */
  readonly onDestroyed: () => void
  readonly devices: DeviceHandlers
}

/** All paths are absolute. */
export interface SandboxConfig {
  readonly runtime: RuntimeChoice
  /** For containers whose annotations do not decide about sockets of AF_VSOCK. */
  readonly containerVsock: ContainerVsock
  /** F_SETPIPE_SZ of stdio pipes; 0 keeps the kernel's size. */
  readonly containerPipeSizeBytes: number
  /** For how long a stream over a port waits for another connection when its device is gone; 0: it ends. */
  readonly streamGraceMs: number
  /** Whether readers of streams over ports acknowledge what they have. */
  readonly streamResume: boolean
  /** How many bytes of its last output each stream keeps. */
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

/** The folder of the stand-in sandbox's pid namespace. */
export function ownNamespaces({ runtimeRoot }: Pick<SandboxConfig, 'runtimeRoot'>): string {
  return `${runtimeRoot}/namespaces`
}

export interface RuntimeChoice {
  readonly kind: 'runc' | 'crun'
  readonly binary: string
}
