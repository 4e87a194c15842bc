import { randomUUID } from 'node:crypto'
import { abortable, neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import { State } from '../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord, StreamRecord } from '../../gen/microvm/instance/v1/records.ts'
import type { QmpEvent } from '../qemu/qmp/message.ts'
import type { SharedConsole } from './console/shared-console.ts'
import { explainDisk, refuseOthersBases } from './devices/disk-in-use.ts'
import type { PlugParts } from './devices/plug-parts.ts'
import { withStopped } from './documents/document-record.ts'
import { noteClockStart } from './documents/guest-clock.ts'
import { notFound } from './instances.ts'
import { checkSteps } from './machine/check-files.ts'
import { EventQueue } from './machine/event-queue.ts'
import type { Gone, Machine } from './machine/machine.ts'
import type { Plan } from './machine/plan.ts'
import { type StartOptions, tapsBefore, withSaved } from './machine/saved-start.ts'
import { isKept, makeSteps, type PlannedStep, type StepContext, undoSteps } from './machine/steps.ts'
import { refuseUndecided, settleUndecided } from './moving/undecided.ts'
import { hasHolder, streamRows, withoutLost, writeRecordFile } from './record/instance-record.ts'
import type { Announcement, RecordedInstance } from './record/recorded-instance.ts'

/** What happens to an instance, for those around it. */
export interface InstanceHooks {
  /** Lets the record follow an event of QEMU. Must not wait for a change of the instance. */
  readonly onEvent: (instance: MachineInstance, event: QmpEvent) => Promise<void>
  /** Called with each machine that has been started or taken in again. */
  readonly onMachine: (instance: MachineInstance, machine: Machine) => void
  /** Called once the machine has ended, and its instance stays. */
  readonly onStopped: () => void
  /** What the registry has of the instance from its removal on. */
  readonly removalOf: (instance: MachineInstance) => ReturnType<typeof streamRows>
  /** Called once the instance has been removed, or could not be made. */
  readonly onForgotten: () => void
  readonly onQmpError: () => void
  /**
   * What each start changes in the record before it is planned: an instance that was made of a document is provided anew. Throws
   * when what the machine needs is not there.
   */
  readonly prepareStart: (instance: MachineInstance, isSaved: boolean) => Promise<Partial<InstanceRecord>>
  /** Throws when the stopped instance may not be started. */
  readonly checkStart: (instance: MachineInstance, prepared: Partial<InstanceRecord>) => void
  /** Called last before a start is recorded. Resolves with what is to be recorded with it. */
  readonly beginRun: (
    instance: MachineInstance,
    next: Readonly<InstanceRecord>,
  ) => Promise<Partial<InstanceRecord>>
  /** Called once a start is recorded, or could not be. */
  readonly onRecorded: (instance: MachineInstance) => void
  /** All instances of this host. */
  readonly all: () => Iterable<MachineInstance>
  readonly plugParts: PlugParts
}

export interface InstanceParts extends Omit<StepContext, 'holder' | 'machine' | 'onEvent' | 'ending'> {
  readonly recorded: RecordedInstance
  readonly plan: Plan
  readonly hooks: InstanceHooks
}

/** One instance. Its changes run one after the other; `kill` and `remove` cut short those before them. */
export class MachineInstance {
  readonly recorded: RecordedInstance
  readonly context: StepContext
  /** The last error of each block node of QEMU, since its start. */
  readonly diskErrors = new Map<string, string>()
  /** When a guest that has not answered since was last reset, by CLOCK_MONOTONIC; what follows at once is its firmware's. */
  resetMs = -Infinity
  /** Whose port is whose. */
  readonly streams = new Map<number, StreamRecord>()
  /** While someone is connected to it. */
  console: SharedConsole | undefined
  readonly plugParts: PlugParts
  /** How many calls make clones of it now: what is below its layers stays as it is meanwhile. */
  clonesUnderWay = 0
  readonly #queue = new SerialQueue()
  readonly #plan: Plan
  readonly #hooks: InstanceHooks
  readonly #log: Logger
  #ending = new AbortController()
  #boot = new AbortController()
  readonly #events: EventQueue
  /** It has been removed, or could not be made. */
  isForgotten = false
  /** It goes on without this process, which can undo nothing any more. */
  isLetGo = false

  constructor({ recorded, plan, hooks, ...parts }: InstanceParts) {
    this.recorded = recorded
    this.#plan = plan
    this.#hooks = hooks
    this.plugParts = hooks.plugParts
    this.#log = parts.log
    this.#events = new EventQueue({
      ...{ limit: parts.limits.events, log: parts.log },
      follow: (event) => hooks.onEvent(this, event),
      onFlood: (event) => this.#onFlood(event),
    })
    this.context = {
      ...parts,
      holder: undefined,
      machine: undefined,
      onEvent: (event) => this.#events.push(event, recorded.timeline),
      ending: () => this.#ending.signal,
    }
  }

  get key(): string {
    return this.recorded.key
  }

  get record(): Readonly<InstanceRecord> {
    return this.recorded.record
  }

  /** Runs `change` after the changes before it. One that has begun goes on when `signal` fires. */
  change<T>(change: () => Promise<T>, signal: AbortSignal): Promise<T> {
    return this.#queue.run(async () => {
      if (this.isForgotten) throw notFound(this.key)
      const before = this.record
      try {
        return await change()
      } finally {
        // The file is for a registry that is made anew.
        try {
          if (this.record !== before && !this.isForgotten) writeRecordFile(this.context.folder, this.record)
        } catch (error) {
          this.#log.warn('record file not written', { error: messageOf(error) })
        }
      }
    }, signal)
  }

  /** Resolves when the record has followed the events of QEMU that have come. */
  async eventsFollowed(): Promise<void> {
    await this.#events.followed()
  }

  /** A signal that fires with `signal`, or once another boot of the guest begins. */
  duringBoot(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#boot.signal])
  }

  /** Ends what belongs to the boot before, with `reason`. */
  beginBoot(reason: string | AgentError): void {
    const text = typeof reason === 'string' ? `instance ${this.key}: ${reason}` : ''
    this.#boot.abort(typeof reason === 'string' ? new AgentError('ABORTED', text) : reason)
    this.#boot = new AbortController()
  }

  /** Waits for the changes that have been asked for. */
  async settled(): Promise<void> {
    await this.#queue.run(async () => {}, neverAborted)
  }

  /** What a start makes, by the present record with some changes; `blocks`: what opens the disks of an instance that is stopped. */
  planned(
    changes: Partial<InstanceRecord> = {},
    what?: 'incoming' | 'blocks',
  ): Promise<readonly PlannedStep[]> {
    return this.#plan({ ...this.record, ...changes }, this.context.folder, what)
  }

  /** The machine, which must be paused or running. */
  machine(): Machine {
    const { machine } = this.context
    if (machine !== undefined) return machine
    throw new AgentError('FAILED_PRECONDITION', `instance ${this.key}: stopped, want paused or running`)
  }

  /** Makes the machine, paused; `isNew`: forgets the instance when that fails. To be called in a change. */
  async start(options: StartOptions): Promise<void> {
    const { context, recorded } = this
    const { isNew, desired, saved } = options
    // The holder's program begins while the start is checked and written down.
    await using _holder = context.holders.begin?.(context.folder)
    const planned = await this.#record(options)
    try {
      await makeSteps(context, planned, recorded.record)
      this.watch(this.machine())
      await (saved === undefined ? noteClockStart(this) : saved.load())
      if (desired === State.RUNNING) await this.machine().qmp.execute('cont', {}, this.#ending.signal)
      await this.#reached(desired)
    } catch (error) {
      const told = this.explain(error)
      if (this.isLetGo && saved?.step === 'incoming') throw told
      if (isNew) await this.#forget()
      else await this.tearDown(messageOf(told))
      throw told
    }
  }

  /** The error, or who uses the file, at `path` unless QEMU says, when that is what kept QEMU from it. */
  explain(error: unknown, path?: string): unknown {
    return explainDisk(error, this, path)
  }

  /** All instances of this host. */
  all(): Iterable<MachineInstance> {
    return this.#hooks.all()
  }

  /** Writes down what a start is about to make. */
  async #record({ isNew, desired, saved }: StartOptions) {
    const { context, recorded } = this
    try {
      refuseUndecided(this)
      const prepared = await this.#hooks.prepareStart(this, saved !== undefined)
      const all =
        saved === undefined
          ? await this.planned(prepared)
          : withSaved(await this.planned(prepared, 'incoming'), saved)
      await checkSteps(context, all)
      const planned = saved === undefined ? all : tapsBefore(all, saved)
      if (!isNew) this.#hooks.checkStart(this, prepared)
      refuseOthersBases({ ...this.record, ...prepared }.specification?.backends, this)
      const add = [...planned.map(({ step, words }) => recorded.step(step, words)), ...(saved?.steps ?? [])]
      const run = await this.#hooks.beginRun(this, { ...this.record, ...prepared })
      const state = { desired, current: State.CREATING, reason: '', terminated: false }
      const set = { ...prepared, ...run, ...state, ...(!isNew && { bootId: randomUUID(), rebootsMs: [] }) }
      const text = isNew ? 'the instance is being made' : 'the machine is being started'
      await recorded.commit({ set, add, rows: saved?.rows ?? [], kind: isNew ? 'created' : 'state', text })
      return planned
    } catch (error) {
      if (isNew) this.#forgotten()
      throw error
    } finally {
      this.#hooks.onRecorded(this)
    }
  }

  /** Follows the machine until it ends by itself. */
  watch(machine: Machine): void {
    this.#hooks.onMachine(this, machine)
    void machine.gone.then((gone) => {
      if (this.context.machine === machine) this.end(gone)
    })
  }

  /** Ends a machine that went wrong, after the changes before. */
  end({ kind, reason }: Gone): void {
    const ended = this.change(async () => {
      if (this.context.machine === undefined) return
      if (kind === 'holder died') this.context.holder = undefined
      if (kind === 'qmp error') this.#hooks.onQmpError()
      await this.tearDown(reason, kind === 'holder died' ? kind : 'state')
    }, this.#ending.signal)
    ended.catch((error) => this.#log.warn('instance not ended', { reason, error: messageOf(error) }))
  }

  /** Only a QEMU that its guest has taken over sends so many, but of a disk that fails at each request. */
  #onFlood({ name }: QmpEvent): void {
    const { machine, limits } = this.context
    if (name === 'BLOCK_IO_ERROR' || machine === undefined || machine.qmp.isClosed) return
    this.end({ kind: 'qmp error', reason: `QEMU sent more than ${limits.events} events at once` })
    machine.close()
  }

  /** Runs the last `change` of those that ask for `name` before it begins, after the present one. */
  follow(name: string, change: () => Promise<void>): void {
    this.#events.lastOf(name, change, (last) => this.change(last, neverAborted))
  }

  async run(): Promise<void> {
    await settleUndecided(this)
    const { current } = this.record
    if (current === State.STOPPED) {
      // What an earlier stop could not undo would be in the way.
      await this.#halt()
      await this.start({ isNew: false, desired: State.RUNNING })
    } else if (current !== State.RUNNING) await this.#ask(State.RUNNING)
  }

  async pause(): Promise<void> {
    this.machine()
    if (this.record.current !== State.PAUSED) await this.#ask(State.PAUSED)
  }

  /** Presses the power button. A paused guest cannot react, so its machine ends at once. */
  async stop(graceMs: number): Promise<void> {
    const { machine, clock } = this.context
    if (machine === undefined) return await this.#halt()
    const wasRunning = this.record.current === State.RUNNING
    const set = { desired: State.STOPPED, current: State.STOPPING }
    await this.recorded.note({ set, kind: 'state', text: 'the machine is being stopped', frees: true })
    if (wasRunning) {
      const over = new AbortController()
      const grace = clock.sleep(graceMs, AbortSignal.any([over.signal, this.#ending.signal])).catch(() => {})
      await machine.qmp.execute('system_powerdown', {}, this.#ending.signal).catch(() => {})
      await Promise.race([machine.gone, grace])
      over.abort()
    }
    await this.tearDown('')
  }

  async kill(signal: AbortSignal): Promise<void> {
    await this.endAtOnce('the machine is being killed', () => this.#halt(), signal)
  }

  async remove(signal: AbortSignal): Promise<void> {
    await this.endAtOnce('the instance is being removed', () => this.finishRemoval(), signal)
  }

  async finishRemoval(): Promise<void> {
    const set = { desired: State.REMOVING, current: State.REMOVING }
    await this.recorded.note({ set, kind: 'state', text: 'the instance is being removed', frees: true })
    await this.#forget()
  }

  /** Stops the machine, unless it is stopped already. */
  async #halt(): Promise<void> {
    const isStopped = this.record.current === State.STOPPED && this.recorded.steps.every(isKept)
    if (isStopped) this.#ending = new AbortController()
    else await this.tearDown('')
  }

  /** Undoes all that only a machine needs. The instance is stopped then. */
  async tearDown(reason: string, kind: Announcement['kind'] = 'state'): Promise<void> {
    const { recorded } = this
    const ending = { desired: State.STOPPED, current: State.STOPPING, reason }
    await recorded.note({ set: ending, kind: 'state', text: 'the machine is ending', frees: true })
    const drop = await undoSteps(
      this.context,
      recorded.steps.filter((step) => !isKept(step)),
    )
    this.#ending = new AbortController()
    this.diskErrors.clear()
    this.streams.clear()
    const lost = withoutLost(this.record, recorded.steps)
    const isEnded = !hasHolder(recorded.steps.filter((step) => !drop.includes(step)))
    const ended = withStopped({ ...this.record, ...lost }, isEnded)
    const set = { current: State.STOPPED, reason, privateMemory: '', ...lost, ...ended }
    const rows = streamRows(drop)
    await recorded.note({ set, drop, rows, kind, text: reason || 'the machine has stopped', frees: true })
    this.#hooks.onStopped()
    this.#log.info('instance stopped', { instance: this.key, reason })
  }

  /** Lets the instance go on without this process. */
  close(): void {
    const { machine, holder } = this.context
    this.isLetGo = true
    this.context.machine = undefined
    this.context.lease?.close()
    machine?.close()
    holder?.disconnect()
  }

  /** Ends waits for the guest when the instance is to end at once. */
  get ending(): AbortSignal {
    return this.#ending.signal
  }

  /** Runs `change` after those before it, which are cut short. */
  async endAtOnce(reason: string, change: () => Promise<void>, signal: AbortSignal): Promise<void> {
    this.#ending.abort(new AgentError('ABORTED', `instance ${this.key}: ${reason}`))
    this.context.machine?.close()
    // It must have its turn also when its caller leaves, because the changes before it have been cut short.
    await abortable(this.change(change, neverAborted), signal)
  }

  async #ask(state: typeof State.RUNNING | typeof State.PAUSED): Promise<void> {
    const [command, text] =
      state === State.RUNNING ? (['cont', 'run'] as const) : (['stop', 'pause'] as const)
    const { desired } = this.record
    await this.recorded.commit({ set: { desired: state }, kind: 'state', text: `the machine is to ${text}` })
    try {
      await this.machine().qmp.execute(command, {}, this.#ending.signal)
    } catch (error) {
      await this.recorded.note({ set: { desired }, kind: 'state', text: messageOf(error) })
      throw error
    }
    await this.#reached(state)
  }

  async #reached(current: State): Promise<void> {
    const text = current === State.RUNNING ? 'the machine runs' : 'the machine is paused'
    await this.recorded.note({ set: { current, reason: '' }, kind: 'state', text })
    this.#log.info(text, { instance: this.key })
  }

  /** Undoes all steps and removes all rows. */
  async #forget(): Promise<void> {
    const { recorded } = this
    // A registry that was made anew has lost this step.
    const folder = recorded.step('folder', ['', this.context.folder])
    const steps = [...recorded.steps.filter(({ step }) => step !== 'folder'), folder]
    const undone = await undoSteps(this.context, steps)
    const left = steps.length - undone.length
    if (left > 0) throw new AgentError('INTERNAL', `instance ${this.key}: ${left} steps could not be undone`)
    await recorded.forget([...streamRows(recorded.steps), ...this.#hooks.removalOf(this)])
    this.#forgotten()
  }

  #forgotten(): void {
    this.isForgotten = true
    this.#hooks.onForgotten()
    this.#log.info('instance removed', { instance: this.key })
  }
}
