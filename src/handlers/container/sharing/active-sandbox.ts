import type { GuestHooks } from '../../../oci/hooks.ts'
import type { SharedPidNamespace } from './shared-pid-namespace.ts'

/** What CreateSandbox has set up, as its containers see it; without a sandbox, what stands in for it. */
export interface ActiveSandbox {
  /** '' without a sandbox. */
  readonly id: string
  /** Paths of the namespaces that its containers join; undefined gives each container its own. */
  readonly namespaces: { readonly ipc: string | undefined; readonly uts: string | undefined }
  /** The pid namespace that containers may share. */
  readonly pidNamespace: SharedPidNamespace
  /** Hooks of the guest, for every container. */
  readonly guestHooks: GuestHooks
}

/** Where the active sandbox is looked up. */
export interface SandboxLookup {
  /**
   * The sandbox, or what stands in for it before CreateSandbox. Throws INTERNAL while a sandbox is created or destroyed,
   * and after it; `Dead agent: restarted` when it was lost.
   */
  active(): ActiveSandbox
}
