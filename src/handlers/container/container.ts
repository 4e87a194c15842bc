import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import type { Hook } from '../../gen/oci.ts'
import type { ProcessState } from '../../gen/state/container.ts'
import type { ProcessOwner } from '../process/owner.ts'
import type { StoredSpec } from './bundle.ts'
import { type ContainerRecord, Phase } from './container-record.ts'

export interface ContainerParts extends ProcessOwner {
  readonly record: ContainerRecord
  readonly spec: StoredSpec
  readonly startContainer: readonly Hook[]
  readonly poststart: readonly Hook[]
  /** Releases mounts, bundle and storages, but not the runtime's state. May be called again. */
  readonly release: () => Promise<void>
}

/** The state of a container. A removal ends a transition by `interrupt`. */
export type ContainerState =
  | { readonly name: 'creating'; readonly interrupt: AbortController }
  | { readonly name: 'created'; readonly parts: ContainerParts }
  | { readonly name: 'starting'; readonly parts: ContainerParts; readonly interrupt: AbortController }
  | { readonly name: 'running'; readonly parts: ContainerParts }
  /** A paused container may still await its start. */
  | { readonly name: 'paused'; readonly parts: ContainerParts }
  /** Being paused, resumed or given other limits. */
  | { readonly name: 'updating'; readonly parts: ContainerParts; readonly interrupt: AbortController }
  | { readonly name: 'stopped'; readonly parts: ContainerParts }
  | { readonly name: 'removing'; readonly parts: ContainerParts }
  /** Its creation failed, or it was removed. */
  | { readonly name: 'gone' }

/** A state of a container whose first process is alive. */
export type LivingState = 'created' | 'running' | 'paused'

const PHASES: Readonly<Record<LivingState, Phase>> = {
  created: Phase.CREATED,
  running: Phase.RUNNING,
  paused: Phase.PAUSED,
}

/** What is recorded of a pause or a resume under way. `request` is the number of the call, or 0. */
export interface IntendedUpdate {
  readonly phase: Phase.PAUSING | Phase.RESUMING
  readonly request: bigint
}

/** A pause, a resume or a change of limits under way. `end` must follow. */
export interface ContainerUpdate {
  readonly parts: ContainerParts
  readonly before: LivingState
  readonly awaitsStart: boolean
  /** Fires when the container is about to be removed. */
  readonly interrupted: AbortSignal
  /** The container becomes stopped if its first process has ended meanwhile. */
  end(after: LivingState): void
}

/**
 * One container: its state and the only ways to change it. A transition is set before its work begins, so that two calls
 * never change a container at the same time. Each change is recorded when its method returns. The end of a transition is
 * recorded after the state has changed, so that no call waits for ever when the write throws.
 */
export class Container {
  /** The path of its cgroup below the root of each hierarchy. */
  readonly cgroupPath: string
  readonly record: ContainerRecord
  /** Fires when the container is to be removed during its creation. */
  readonly creationInterrupted: AbortSignal
  #state: ContainerState
  readonly #changes = new Changes()
  #startAsked = false

  /** Begins in the state `creating`: `publish`, `restore` or `abandon` must follow. */
  constructor(record: ContainerRecord) {
    this.cgroupPath = record.fields.cgroupPath
    this.record = record
    const interrupt = new AbortController()
    this.#state = { name: 'creating', interrupt }
    this.creationInterrupted = interrupt.signal
  }

  /** By which callers name it. */
  get id(): string {
    return this.record.id
  }

  get state(): ContainerState {
    return this.#state
  }

  /** Whether the first process still is the runtime's own program, which waits for the start. */
  get awaitsStart(): boolean {
    return !this.#startAsked
  }

  get isInTransition(): boolean {
    return 'interrupt' in this.#state || this.#state.name === 'removing'
  }

  /** Waits until the state differs from `state`. Throws the reason of `signal`. */
  async changed(state: ContainerState, signal: AbortSignal): Promise<void> {
    while (this.#state === state) await this.#changes.next(signal)
  }

  /** Ends a successful creation. `init` is what is recorded of the first process. */
  publish(parts: ContainerParts, init: ProcessState): void {
    this.record.save({ phase: Phase.CREATED, init, programBeforeStart: parts.programBeforeStart ?? '' })
    this.#publishAs('created', parts)
  }

  restore(parts: ContainerParts, name: LivingState, startAsked: boolean): void {
    this.#startAsked = startAsked
    this.#publishAs(name, parts)
  }

  #publishAs(name: LivingState, parts: ContainerParts): void {
    this.#settle(parts, name)
    const onEnd = () => this.#initEnded(parts)
    parts.init.ended.then(onEnd, onEnd)
  }

  /** Ends a failed creation or a successful removal. */
  abandon(): void {
    this.#become({ name: 'gone' })
    this.record.remove()
  }

  /** Throws INTERNAL unless the container awaits its start. `request` is the number of the call, or 0. */
  beginStart(request: bigint): { readonly parts: ContainerParts; readonly interrupted: AbortSignal } {
    if (this.#state.name !== 'created') {
      throw new AgentError('INTERNAL', `container ${this.id} is ${this.#state.name}, not created`, {
        fault: 'caller',
      })
    }
    const { parts } = this.#state
    // A call that is sent again does not repeat the hooks that the previous agent began.
    const isSame = request !== 0n && this.record.fields.request === request
    const hooksBegun = isSame ? this.record.fields.hooksBegun : 0
    this.record.save({ phase: Phase.STARTING, request, hooksBegun })
    this.#startAsked = true
    const interrupt = new AbortController()
    this.#become({ name: 'starting', parts, interrupt })
    return { parts, interrupted: interrupt.signal }
  }

  /** Finishes a start of the previous agent by `rest`, which must not reject. */
  async resumeStart(parts: ContainerParts, rest: (interrupted: AbortSignal) => Promise<void>): Promise<void> {
    const interrupt = new AbortController()
    this.#become({ name: 'starting', parts, interrupt })
    await rest(interrupt.signal)
    this.endStart(parts, true)
  }

  /** Makes a transition fail with INTERNAL and undo itself, except a removal. The caller kills what it waits for. */
  interrupt(): void {
    if ('interrupt' in this.#state) this.#state.interrupt.abort(toBeRemoved(this.id))
  }

  /** After a failed start the container awaits its start again, unless its first process has ended. */
  endStart(parts: ContainerParts, succeeded: boolean): void {
    this.#startAsked = succeeded
    this.#settle(parts, succeeded ? 'running' : 'created')
    // Request 0: the next agent must not answer a failed start as done.
    this.record.save(succeeded ? { phase: Phase.RUNNING } : { phase: Phase.CREATED, request: 0n })
  }

  /** Throws INTERNAL unless the container is in a state of `from`. `intended` is recorded for a pause or a resume. */
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

  /** Throws INTERNAL while another transition is under way. `request` is the number of the call, or 0. */
  beginRemove(request: bigint): ContainerParts {
    const state = this.#state
    if (this.isInTransition || !('parts' in state)) {
      throw new AgentError('INTERNAL', `container ${this.id} is ${state.name}`, { fault: 'caller' })
    }
    this.record.save({ phase: Phase.REMOVING, request })
    this.#become({ name: 'removing', parts: state.parts })
    return state.parts
  }

  /** Ends a failed removal, which may be tried again. A removal thaws the container, so it is not paused any more. */
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

/** The error of a call that a removal interrupts. */
export function toBeRemoved(containerId: string): AgentError {
  return new AgentError('INTERNAL', `container ${containerId} is to be removed`, { fault: 'caller' })
}
