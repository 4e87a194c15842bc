import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { ActiveSandbox, SandboxLookup } from '../container/sharing/active-sandbox.ts'
import { SharedPidNamespace } from '../container/sharing/shared-pid-namespace.ts'
import type { SandboxRecord } from './sandbox-record.ts'

/** What CreateSandbox has set up. */
export interface Sandbox extends ActiveSandbox {
  /** Undo of the set-up, which DestroySandbox runs. */
  readonly onDestroy: UndoList
  readonly record: SandboxRecord
}

type State =
  | { readonly name: 'none' }
  /** What the previous agent left could not be restored, and was removed. */
  | { readonly name: 'lost' }
  | { readonly name: 'creating'; readonly interrupt: AbortController }
  | { readonly name: 'active'; readonly sandbox: Sandbox }
  | { readonly name: 'destroying' }
  | { readonly name: 'destroyed' }

/**
 * What containers join when there is no sandbox: nothing, except the pid namespace of the first of them, which is
 * pinned in `folder`.
 */
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

  /** `standIn` serves containers that come before CreateSandbox. */
  constructor(standIn: ActiveSandbox) {
    this.#standIn = standIn
  }

  /** The name of the state, and the sandbox while there is one; changes nothing. */
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

  /** What the previous agent left: the sandbox, no sandbox yet, a destroyed one, or a lost one. */
  restore(sandbox: Sandbox | 'none' | 'destroyed' | 'lost'): void {
    this.#state = typeof sandbox === 'string' ? { name: sandbox } : { name: 'active', sandbox }
  }

  /**
   * Begins a creation. Throws INTERNAL while a sandbox exists. Exactly one of the two functions must follow; `failed`
   * restores the state before. `interrupted` fires when the sandbox is about to be destroyed.
   */
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
   * Begins a destruction, once no other transition is under way; a creation is ended, fails with INTERNAL, and undoes itself.
   * `sandbox` is undefined when none was created. Throws INTERNAL when the sandbox was destroyed before, and the reason of
   * `signal` when that fires first. Exactly one of the two functions must follow: `failed` restores the state before, or
   * leaves no sandbox when its set-up `isUndone`.
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
