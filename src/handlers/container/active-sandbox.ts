import type { GuestHooks } from '../../oci/hooks.ts'
import type { SharedPidNamespace } from './shared-pid-namespace.ts'

/** What CreateSandbox has set up, as its containers see it. */
export interface ActiveSandbox {
  readonly id: string
  /** Paths of the namespaces that its containers join. */
  readonly namespaces: { readonly ipc: string; readonly uts: string }
  /** The pid namespace that containers may share. */
  readonly pidNamespace: SharedPidNamespace
  /** Hooks of the guest, for every container. */
  readonly guestHooks: GuestHooks
}

/** Where the active sandbox is looked up. */
export interface SandboxLookup {
  /** Throws INTERNAL when there is none, `Dead agent: restarted` when it was lost. */
  active(): ActiveSandbox
}
