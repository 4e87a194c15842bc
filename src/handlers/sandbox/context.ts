import type { OomEvents } from '../cgroup/oom-events.ts'
import type { GuestSysctls } from '../container/guest-sysctls.ts'
import type { ContainerRegistry } from '../container/registry.ts'
import type { OciRuntime } from '../oci-runtime/oci-runtime.ts'
import type { SandboxDependencies } from './dependencies.ts'
import type { SandboxState } from './sandbox-state.ts'

/** What the calls of one agent share. */
export interface SandboxContext extends SandboxDependencies {
  readonly sandboxState: SandboxState
  readonly containers: ContainerRegistry
  readonly runtime: OciRuntime
  readonly oom: OomEvents
  readonly sysctls: GuestSysctls
  /** Resolves when nothing of a dead predecessor is left; never rejects. */
  readonly cleanUpAfterCrash: () => Promise<void>
}
