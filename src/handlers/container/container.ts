import { AgentError } from '../../base/errors.ts'
import type { Hook } from '../../gen/oci.ts'
import type { PciAddresses } from '../../oci/pci-environment.ts'
import type { Cgroup } from '../cgroup/cgroup.ts'
import type { ContainerProcess } from '../process/process.ts'
import type { ProcessTable } from '../process/process-table.ts'
import type { StoredSpec } from './stored-spec.ts'

/** What a container consists of once it was created. */
export interface ContainerParts {
  readonly init: ContainerProcess
  /** What the container was asked to be; processes that are added later inherit from its first one. */
  readonly spec: StoredSpec
  /** What to run once it was started. */
  readonly poststart: readonly Hook[]
  readonly processes: ProcessTable
  readonly cgroup: Cgroup
  /** What its first process executed while it waited to be started: the runtime's own program, if that could be told. */
  readonly programBeforeStart: string | undefined
  /** Where the host's PCI devices of the container are in the guest. */
  readonly pciAddresses: PciAddresses
  /** Takes away what creating it made beside the runtime's state: mounts, bundle, storages. May be called again. */
  readonly release: () => Promise<void>
}

/** Where a container is in its life. `settled` resolves when the transition is over, however it ended. */
export type ContainerState =
  | { readonly name: 'creating'; readonly settled: Promise<void> }
  | { readonly name: 'created'; readonly parts: ContainerParts }
  | {
      readonly name: 'starting'
      readonly parts: ContainerParts
      readonly settled: Promise<void>
      readonly hurry: AbortController
    }
  | { readonly name: 'running'; readonly parts: ContainerParts }
  /** Its processes are frozen; it may not even be started. */
  | { readonly name: 'paused'; readonly parts: ContainerParts }
  /** Being paused, resumed or given other limits. */
  | { readonly name: 'updating'; readonly parts: ContainerParts; readonly settled: Promise<void> }
  | { readonly name: 'stopped'; readonly parts: ContainerParts }
  | { readonly name: 'removing'; readonly parts: ContainerParts; readonly settled: Promise<void> }
  /** Its creation failed, or it was removed. */
  | { readonly name: 'gone' }

/** A state of a container with a first process that lives. */
export type LivingState = 'created' | 'running' | 'paused'

/** A change under way of a container that stays what it is. `end` must follow. */
export interface ContainerUpdate {
  readonly parts: ContainerParts
  readonly before: LivingState
  /** Ends it; the container is stopped if its first process has ended meanwhile. */
  end(after: LivingState): void
}

/**
 * One container: its state and the only ways to change it. A transition is set before its work begins, so two calls
 * can never both believe that the container is theirs; whoever needs its outcome waits for it.
 */
export class Container {
  readonly id: string
  /** Where below the root of each hierarchy its cgroup is. */
  readonly cgroupPath: string
  #state: ContainerState
  #endTransition: () => void
  #startAsked = false

  /** A container that is being created: {@link Container.created} or {@link Container.abandon} must follow. */
  constructor(id: string, cgroupPath: string) {
    this.id = id
    this.cgroupPath = cgroupPath
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#endTransition = resolve
    this.#state = { name: 'creating', settled: promise }
  }

  get state(): ContainerState {
    return this.#state
  }

  /** True as long as its first process is still the runtime's own program, which waits for the start. */
  get awaitsStart(): boolean {
    return !this.#startAsked
  }

  /** Resolves when the transition under way is over; undefined when there is none. Another one may follow. */
  get transition(): Promise<void> | undefined {
    return 'settled' in this.#state ? this.#state.settled : undefined
  }

  /** Creating succeeded. */
  created(parts: ContainerParts): void {
    this.#state = { name: parts.init.status === undefined ? 'created' : 'stopped', parts }
    this.#endTransition()
    const onEnd = () => this.#initEnded(parts)
    parts.init.ended.then(onEnd, onEnd)
  }

  /** Creating failed, or removing succeeded: nobody will find this container any more. */
  abandon(): void {
    this.#state = { name: 'gone' }
    this.#endTransition()
  }

  /**
   * Begins a start. Throws INTERNAL unless the container is waiting to be started. `hurried` fires when somebody waits
   * for its end to remove the container.
   */
  beginStart(): { readonly parts: ContainerParts; readonly hurried: AbortSignal } {
    if (this.#state.name !== 'created') {
      throw new AgentError('INTERNAL', `container ${this.id} is ${this.#state.name}, not created`)
    }
    const { parts } = this.#state
    this.#startAsked = true
    const hurry = new AbortController()
    this.#state = { name: 'starting', parts, settled: this.#newTransition(), hurry }
    return { parts, hurried: hurry.signal }
  }

  /** Of a start under way, leaves out what the container that is to be removed needs no more. */
  hurryStart(): void {
    if (this.#state.name !== 'starting') return
    this.#state.hurry.abort(new AgentError('INTERNAL', `container ${this.id} is to be removed`))
  }

  /** Ends a start. After a failed one the container waits as before, unless its process is gone. */
  endStart(parts: ContainerParts, succeeded: boolean): void {
    this.#startAsked = succeeded
    this.#settle(parts, succeeded ? 'running' : 'created')
  }

  /** Begins a change. Throws INTERNAL unless the container is in one of these states. */
  beginUpdate(from: readonly LivingState[]): ContainerUpdate {
    const state = this.#state
    const before = from.find((name) => name === state.name)
    if (before === undefined || !('parts' in state)) {
      throw new AgentError('INTERNAL', `container ${this.id} is ${state.name}, not ${from.join(' or ')}`)
    }
    const { parts } = state
    this.#state = { name: 'updating', parts, settled: this.#newTransition() }
    return { parts, before, end: (after) => this.#settle(parts, after) }
  }

  /** Begins a removal. Throws INTERNAL while another transition is under way. */
  beginRemove(): ContainerParts {
    const state = this.#state
    if ('settled' in state || state.name === 'gone') {
      throw new AgentError('INTERNAL', `container ${this.id} is ${state.name}`)
    }
    this.#state = { name: 'removing', parts: state.parts, settled: this.#newTransition() }
    return state.parts
  }

  /** Ends a removal that failed; it may be tried again. */
  removeFailed(parts: ContainerParts): void {
    this.#settle(parts, 'running')
  }

  /** Ends a transition of a container whose first process may have ended in it. */
  #settle(parts: ContainerParts, name: LivingState): void {
    this.#state = { name: parts.init.status === undefined ? name : 'stopped', parts }
    this.#endTransition()
  }

  #newTransition(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#endTransition = resolve
    return promise
  }

  #initEnded(parts: ContainerParts): void {
    const { name } = this.#state
    if (name === 'created' || name === 'running' || name === 'paused')
      this.#state = { name: 'stopped', parts }
  }
}
