import type { GuestHooks } from '../../../oci/hooks.ts'
import type { SharedPidNamespace } from './shared-pid-namespace.ts'

/** The sandbox as its containers see it, or the stand-in sandbox. */
export interface ActiveSandbox {
  /** Empty for the stand-in sandbox. */
  readonly id: string
  /** Paths of the namespaces that its containers join; undefined gives each container its own. */
  readonly namespaces: { readonly ipc: string | undefined; readonly uts: string | undefined }
  readonly pidNamespace: SharedPidNamespace
  readonly guestHooks: GuestHooks
}

export interface SandboxLookup {
  /**
   * The sandbox, or the stand-in sandbox before CreateSandbox. Throws INTERNAL while a sandbox is being created or destroyed
   * and once it is destroyed, and INTERNAL `Dead agent: restarted` when it was lost.
   */
  active(): ActiveSandbox
}
