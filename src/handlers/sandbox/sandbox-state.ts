import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { ActiveSandbox, SandboxLookup } from '../container/sharing/active-sandbox.ts'
import { SharedPidNamespace } from '../container/sharing/shared-pid-namespace.ts'
import type { SandboxRecord } from './sandbox-record.ts'

export interface Sandbox extends ActiveSandbox {
  /** DestroySandbox runs this undo of the set-up. */
  readonly onDestroy: UndoList
  readonly record: SandboxRecord
}

type State =
  | { readonly name: 'none' }
  /** The previous agent's sandbox could not be restored, and was removed. */
  | { readonly name: 'lost' }
  | { readonly name: 'creating'; readonly interrupt: AbortController }
  | { readonly name: 'active'; readonly sandbox: Sandbox }
  | { readonly name: 'destroying' }
  | { readonly name: 'destroyed' }

/** Containers without a sandbox share only the pid namespace of the first of them, pinned in `folder`. */
export function standInSandbox(folder: string): ActiveSandbox {
  return {
    id: '',
    namespaces: { ipc: undefined, uts: undefined },
    pidNamespace: new SharedPidNamespace(`${folder}/pid`),
    guestHooks: { prestart: [], poststart: [], poststop: [] },
  }
}

/** The state of the one sandbox, with the only ways to change it. */
export class SandboxState implements SandboxLookup {
  #state: State = { name: 'none' }
  readonly #changes = new Changes()
  readonly #standIn: ActiveSandbox

  constructor(standIn: ActiveSandbox) {
    this.#standIn = standIn
  }

  /** The name of the state, and the sandbox while it is active. */
  get view(): { readonly name: State['name']; readonly sandbox: Sandbox | undefined } {
    const { name } = this.#state
    return { name, sandbox: this.#state.name === 'active' ? this.#state.sandbox : undefined }
  }

  active(): ActiveSandbox {
    if (this.#state.name === 'active') return this.#state.sandbox
    if (this.#state.name === 'none') return this.#standIn
    this.refuseLost()
    throw new AgentError('INTERNAL', `sandbox: not active (${this.#state.name})`, { fault: 'caller' })
  }

  /** Throws INTERNAL `Dead agent: restarted` when a sandbox was lost and none was created since. */
  refuseLost(): void {
    if (this.#state.name === 'lost')
      throw new AgentError('INTERNAL', 'Dead agent: restarted', { fault: 'caller' })
  }

  restore(sandbox: Sandbox | 'none' | 'destroyed' | 'lost'): void {
    this.#state = typeof sandbox === 'string' ? { name: sandbox } : { name: 'active', sandbox }
  }

  /** Throws INTERNAL while a sandbox exists. `created` or `failed` must follow. `interrupted` fires at a DestroySandbox. */
  beginCreate(): { readonly interrupted: AbortSignal; created(sandbox: Sandbox): void; failed(): void } {
    const before = this.#state
    if (before.name === 'creating' || before.name === 'active' || before.name === 'destroying') {
      const id = before.name === 'active' ? ` '${before.sandbox.id}'` : ''
      throw new AgentError('INTERNAL', `sandbox${id}: already exists (${before.name})`, { fault: 'caller' })
    }
    const interrupt = new AbortController()
    this.#become({ name: 'creating', interrupt })
    return {
      interrupted: interrupt.signal,
      created: (sandbox) => this.#become({ name: 'active', sandbox }),
      failed: () => this.#become(before),
    }
  }

  /**
   * Interrupts a creation, and waits until no transition is under way. `sandbox` is undefined when none was created. Throws
   * INTERNAL when the sandbox was destroyed before, or the reason of `signal`. `destroyed` or `failed` must follow; `failed`
   * restores the state before, or leaves no sandbox when its set-up `isUndone`.
   */
  async beginDestroy(
    signal: AbortSignal,
  ): Promise<{ readonly sandbox: Sandbox | undefined; destroyed(): void; failed(isUndone: boolean): void }> {
    while (this.#state.name === 'creating' || this.#state.name === 'destroying') {
      if (this.#state.name === 'creating') this.#state.interrupt.abort(toBeDestroyed())
      await this.#changes.next(signal)
    }
    const before = this.#state
    if (before.name === 'destroyed') {
      throw new AgentError('INTERNAL', 'failed to get sandbox sender channel', { fault: 'caller' })
    }
    this.#become({ name: 'destroying' })
    return {
      sandbox: before.name === 'active' ? before.sandbox : undefined,
      destroyed: () => this.#become({ name: 'destroyed' }),
      failed: (isUndone) => this.#become(isUndone ? { name: 'none' } : before),
    }
  }

  #become(state: State): void {
    this.#state = state
    this.#changes.announce()
  }
}

function toBeDestroyed(): AgentError {
  return new AgentError('INTERNAL', 'sandbox: is to be destroyed', { fault: 'caller' })
}
