import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import type { Hook } from '../../gen/oci.ts'
import type { ProcessOwner } from '../process/owner.ts'
import type { StoredSpec } from './bundle.ts'
import { type ContainerRecord, Phase } from './container-record.ts'

/** The parts of a created container. */
export interface ContainerParts extends ProcessOwner {
  readonly record: ContainerRecord
  /** The description of the container. Processes that are added later inherit from its first one. */
  readonly spec: StoredSpec
  /** Hooks to run in the container before its program. */
  readonly startContainer: readonly Hook[]
  /** Hooks to run after the start. */
  readonly poststart: readonly Hook[]
  /** Undoes what creating it made besides the runtime's state: mounts, bundle, storages. May be called again. */
  readonly release: () => Promise<void>
}

/** The state of a container. `interrupt` ends a transition that a removal does not wait for. */
export type ContainerState =
  | { readonly name: 'creating'; readonly interrupt: AbortController }
  | { readonly name: 'created'; readonly parts: ContainerParts }
  | { readonly name: 'starting'; readonly parts: ContainerParts; readonly interrupt: AbortController }
  | { readonly name: 'running'; readonly parts: ContainerParts }
  /** Its processes are frozen. It may still await its start. */
  | { readonly name: 'paused'; readonly parts: ContainerParts }
  /** Being paused, resumed or given other limits. */
  | { readonly name: 'updating'; readonly parts: ContainerParts; readonly interrupt: AbortController }
  | { readonly name: 'stopped'; readonly parts: ContainerParts }
  | { readonly name: 'removing'; readonly parts: ContainerParts }
  /** Its creation failed, or it was removed. */
  | { readonly name: 'gone' }

/** A state of a container whose first process is alive. */
export type LivingState = 'created' | 'running' | 'paused'

/** The phases under which these states outlive the agent. */
const PHASES: Readonly<Record<LivingState, Phase>> = {
  created: Phase.CREATED,
  running: Phase.RUNNING,
  paused: Phase.PAUSED,
}

/** What outlives the agent of a pause or a resume under way: `request` is the number of the call, 0 without one. */
export interface IntendedUpdate {
  readonly phase: Phase.PAUSING | Phase.RESUMING
  readonly request: bigint
}

/** A pause, a resume or a change of limits under way. `end` must follow. */
export interface ContainerUpdate {
  readonly parts: ContainerParts
  /** The state before the update. */
  readonly before: LivingState
  /** Whether the first process still is the runtime's own program, which waits for the start. */
  readonly awaitsStart: boolean
  /** Fires when the container is about to be removed. */
  readonly interrupted: AbortSignal
  /** Ends the update. The container is stopped if its first process has ended meanwhile. */
  end(after: LivingState): void
}

/**
 * One container: its state and the only ways to change it. A transition is set before its work begins, so that two calls
 * never change a container at the same time; a call that needs the outcome of a transition waits for it. Each change is
 * in the record when its method returns. The end of a transition is recorded after it: when that throws, nothing waits.
 */
export class Container {
  readonly id: string
  /** The path of its cgroup below the root of each hierarchy. */
  readonly cgroupPath: string
  /** What outlives the agent. */
  readonly record: ContainerRecord
  /** Fires when the container is about to be removed while it is being created. */
  readonly creationInterrupted: AbortSignal
  #state: ContainerState
  readonly #changes = new Changes()
  #startAsked = false

  /** A container that is being created. {@link Container.publish} or {@link Container.abandon} must follow. */
  constructor(record: ContainerRecord) {
    this.id = record.fields.id
    this.cgroupPath = record.fields.cgroupPath
    this.record = record
    const interrupt = new AbortController()
    this.#state = { name: 'creating', interrupt }
    this.creationInterrupted = interrupt.signal
  }

  get state(): ContainerState {
    return this.#state
  }

  /** Whether the first process still is the runtime's own program, which waits for the start. */
  get awaitsStart(): boolean {
    return !this.#startAsked
  }

  /** Whether it is being created, started, updated or removed. */
  get isInTransition(): boolean {
    return 'interrupt' in this.#state || this.#state.name === 'removing'
  }

  /** Waits until the state is another one than `state`. Throws the reason of `signal` when that fires first. */
  async changed(state: ContainerState, signal: AbortSignal): Promise<void> {
    while (this.#state === state) await this.#changes.next(signal)
  }

  /** Creating succeeded. */
  publish(parts: ContainerParts): void {
    this.record.save({ phase: Phase.CREATED, programBeforeStart: parts.programBeforeStart ?? '' })
    this.#publishAs('created', parts)
  }

  /** The previous agent has created it. */
  restore(parts: ContainerParts, name: LivingState, startAsked: boolean): void {
    this.#startAsked = startAsked
    this.#publishAs(name, parts)
  }

  #publishAs(name: LivingState, parts: ContainerParts): void {
    this.#settle(parts, name)
    const onEnd = () => this.#initEnded(parts)
    parts.init.ended.then(onEnd, onEnd)
  }

  /** Creating failed, or removing succeeded: the container is gone. */
  abandon(): void {
    this.#become({ name: 'gone' })
    this.record.remove()
  }

  /**
   * Begins a start. Throws INTERNAL unless the container awaits its start. `interrupted` fires when the container is
   * about to be removed. `request` is the number of the call, 0 without one.
   */
  beginStart(request: bigint): { readonly parts: ContainerParts; readonly interrupted: AbortSignal } {
    if (this.#state.name !== 'created') {
      throw new AgentError('INTERNAL', `container ${this.id} is ${this.#state.name}, not created`, {
        fault: 'caller',
      })
    }
    const { parts } = this.#state
    // Sent again, it does not repeat the hooks that the previous agent began.
    const isSame = request !== 0n && this.record.fields.request === request
    const hooksBegun = isSame ? this.record.fields.hooksBegun : 0
    this.record.save({ phase: Phase.STARTING, request, hooksBegun })
    this.#startAsked = true
    const interrupt = new AbortController()
    this.#become({ name: 'starting', parts, interrupt })
    return { parts, interrupted: interrupt.signal }
  }

  /** Goes on with a start of which the previous agent did all but `rest`, which never rejects. */
  async resumeStart(parts: ContainerParts, rest: (interrupted: AbortSignal) => Promise<void>): Promise<void> {
    const interrupt = new AbortController()
    this.#become({ name: 'starting', parts, interrupt })
    await rest(interrupt.signal)
    this.endStart(parts, true)
  }

  /**
   * Ends the transition under way, unless it is a removal: it fails with INTERNAL, and undoes itself. The processes that
   * it may wait for must be killed apart.
   */
  interrupt(): void {
    if ('interrupt' in this.#state) this.#state.interrupt.abort(toBeRemoved(this.id))
  }

  /** Ends a start. After a failed one the container awaits its start as before, unless its first process has ended. */
  endStart(parts: ContainerParts, succeeded: boolean): void {
    this.#startAsked = succeeded
    this.#settle(parts, succeeded ? 'running' : 'created')
    // A start that failed is not one that the next agent may answer.
    this.record.save(succeeded ? { phase: Phase.RUNNING } : { phase: Phase.CREATED, request: 0n })
  }

  /**
   * Begins an update. Throws INTERNAL unless the container is in one of these states. `intended` is the record of one that
   * changes the state.
   */
  beginUpdate(from: readonly LivingState[], intended?: IntendedUpdate): ContainerUpdate {
    const state = this.#state
    const before = from.find((name) => name === state.name)
    if (before === undefined || !('parts' in state)) {
      throw new AgentError('INTERNAL', `container ${this.id} is ${state.name}, not ${from.join(' or ')}`, {
        fault: 'caller',
      })
    }
    const { parts } = state
    if (intended !== undefined) this.record.save(intended)
    const interrupt = new AbortController()
    this.#become({ name: 'updating', parts, interrupt })
    const [{ awaitsStart }, interrupted] = [this, interrupt.signal]
    const end = (after: LivingState) => {
      this.#settle(parts, after)
      if (after !== before) this.record.save({ phase: PHASES[after] })
      else if (intended !== undefined) this.record.save({ phase: PHASES[before], request: 0n })
    }
    return { parts, before, awaitsStart, interrupted, end }
  }

  /** Begins a removal, of the call with the number `request`. Throws INTERNAL while another transition is under way. */
  beginRemove(request: bigint): ContainerParts {
    const state = this.#state
    if (this.isInTransition || !('parts' in state)) {
      throw new AgentError('INTERNAL', `container ${this.id} is ${state.name}`, { fault: 'caller' })
    }
    this.record.save({ phase: Phase.REMOVING, request })
    this.#become({ name: 'removing', parts: state.parts })
    return state.parts
  }

  /** Ends a removal that failed, and has thawed the container. It may be tried again. */
  removeFailed(parts: ContainerParts): void {
    const name = this.awaitsStart ? 'created' : 'running'
    this.#settle(parts, name)
    this.record.save({ phase: PHASES[name], request: 0n })
  }

  /** Ends a transition, during which the first process may have ended. */
  #settle(parts: ContainerParts, name: LivingState): void {
    this.#become({ name: parts.init.status === undefined ? name : 'stopped', parts })
  }

  #become(state: ContainerState): void {
    this.#state = state
    this.#changes.announce()
  }

  #initEnded(parts: ContainerParts): void {
    const { name } = this.#state
    if (name === 'created' || name === 'running' || name === 'paused')
      this.#become({ name: 'stopped', parts })
  }
}

/** The error of work on a container that a removal has ended. */
export function toBeRemoved(containerId: string): AgentError {
  return new AgentError('INTERNAL', `container ${containerId} is to be removed`, { fault: 'caller' })
}
