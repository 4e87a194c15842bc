import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { GuestHooks } from '../../oci/hooks.ts'
import type { SharedPidNamespace } from '../container/shared-pid-namespace.ts'

/** What CreateSandbox has set up for the containers. */
export interface Sandbox {
  readonly id: string
  /** Paths of the namespaces that its containers join. */
  readonly namespaces: { readonly ipc: string; readonly uts: string }
  /** The pid namespace that containers may share. */
  readonly pidNamespace: SharedPidNamespace
  /** Hooks of the guest, for every container. */
  readonly guestHooks: GuestHooks
  /** Takes all of it away again. */
  readonly setUp: UndoList
}

type State =
  | { readonly name: 'none' }
  /** The agent that had the sandbox died; this one knows nothing of it. */
  | { readonly name: 'lost' }
  | { readonly name: 'creating'; readonly settled: Promise<void> }
  | { readonly name: 'active'; readonly sandbox: Sandbox }
  | { readonly name: 'destroying'; readonly settled: Promise<void> }
  | { readonly name: 'destroyed' }

/** The one place for the one sandbox: its state, and the only ways to change it. */
export class SandboxState {
  #state: State

  /** `isLost`: a sandbox was there, but the agent that knew it died. */
  constructor(isLost: boolean) {
    this.#state = { name: isLost ? 'lost' : 'none' }
  }

  /** The sandbox. Throws INTERNAL when there is none, `Dead agent: restarted` when it was lost. */
  active(): Sandbox {
    if (this.#state.name === 'active') return this.#state.sandbox
    this.refuseLost()
    throw new AgentError('INTERNAL', 'there is no sandbox: CreateSandbox comes first')
  }

  /** Throws INTERNAL `Dead agent: restarted` when a sandbox was lost and no other one created since. */
  refuseLost(): void {
    if (this.#state.name === 'lost') throw new AgentError('INTERNAL', 'Dead agent: restarted')
  }

  /** Resolves when the transition under way is over; undefined when there is none. */
  get transition(): Promise<void> | undefined {
    return 'settled' in this.#state ? this.#state.settled : undefined
  }

  /**
   * Begins to create. Throws INTERNAL, changing nothing, while a sandbox exists. Exactly one of the two functions
   * must follow; `failed` leads back to what was before.
   */
  beginCreate(): { created(sandbox: Sandbox): void; failed(): void } {
    const before = this.#state
    if (before.name === 'creating' || before.name === 'active' || before.name === 'destroying') {
      const id = before.name === 'active' ? ` '${before.sandbox.id}'` : ''
      throw new AgentError('INTERNAL', `a sandbox${id} already exists (${before.name})`)
    }
    const end = this.#begin('creating')
    return { created: (sandbox) => end({ name: 'active', sandbox }), failed: () => end(before) }
  }

  /**
   * Begins to destroy the sandbox, undefined when none was created. Throws INTERNAL when that was done before.
   * Exactly one of the two functions must follow.
   */
  beginDestroy(): { readonly sandbox: Sandbox | undefined; destroyed(): void; failed(): void } {
    const before = this.#state
    if (before.name === 'destroyed') {
      throw new AgentError('INTERNAL', 'failed to get sandbox sender channel')
    }
    if ('settled' in before) throw new AgentError('INTERNAL', `the sandbox is in transition (${before.name})`)
    const end = this.#begin('destroying')
    return {
      sandbox: before.name === 'active' ? before.sandbox : undefined,
      destroyed: () => end({ name: 'destroyed' }),
      failed: () => end(before),
    }
  }

  /** Sets a transition; the function returned ends it. */
  #begin(name: 'creating' | 'destroying'): (state: State) => void {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#state = { name, settled: promise }
    return (state) => {
      this.#state = state
      resolve()
    }
  }
}
