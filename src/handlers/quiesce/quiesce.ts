import { abortable, neverAborted, withTimeout } from '../../base/abort.ts'
import { AgentError, errnoOf, messageOf, type StatusCodeName } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { isWithin } from '../../base/paths.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import { inStep } from '../../base/step.ts'
import type { QuiesceRequest, QuiesceResponse, ThawResponse } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Os } from '../../os/os.ts'
import type { Thawed } from '../../os/supervisor/supervisor.ts'
import type { EventLog } from '../../state/event-log.ts'
import type { Cgroup } from '../cgroup/cgroup.ts'
import type { ContainerRegistry } from '../container/registry.ts'
import { type DiskFileSystem, diskFileSystems, nameOf, refuseOwn } from './disk-file-systems.ts'
import { waitingProcesses } from './waiting-processes.ts'

/** vminit has no longer bound. */
const LONGEST_MS = 60_000

/** How long the processes of all containers may take to be frozen. */
const CONTAINERS_MS = 5000

/** How long a thaw waits for disks. */
const THAW_MS = 10_000

/** How long vminit may take to say that its bound has passed. */
const ANSWER_MS = 2000

interface Parts {
  readonly os: Os
  readonly log: Logger
  readonly events: Pick<EventLog, 'add'>
  readonly containers: Pick<ContainerRegistry, 'list'>
  /** Files that the agent writes at any time. */
  readonly ownPaths: readonly string[]
  /** Only file systems that were first mounted below this folder are frozen; undefined: all. */
  readonly below: string | undefined
}

interface RunningContainer {
  readonly id: string
  /** Its name in vminit. */
  readonly name: string
  readonly cgroup: Cgroup
}

interface Freeze {
  phase: 'freezing' | 'frozen' | 'thawing'
  readonly timeoutMs: number
  boundAtMs: number
  containers: readonly RunningContainer[]
  /** By their names in vminit, the first to be frozen first. */
  fileSystems: ReadonlyMap<string, DiskFileSystem>
  /** Fires when the freeze is to be given up. */
  readonly interrupt: AbortController
  /** vminit has thawed everything. */
  isOver: boolean
  /** Whether the event of the freeze was told. */
  isTold: boolean
  /** Why it is thawed. */
  reason: 'bound' | ThawReason
}

export type ThawReason = 'call' | 'resume' | 'end of the sandbox'

/** What a call that may write to disks does while the pod is frozen; `thaw` thaws it first. */
export type WhileFrozen = 'serve' | 'refuse' | 'thaw'

/** What is frozen, or is about to be. */
export interface Frozen {
  readonly containers: readonly string[]
  /** Mount points. */
  readonly fileSystems: readonly string[]
  readonly thawInMs: number
}

/**
 * Freezes the pod: the processes of its containers, then the file systems of its disks. vminit thaws them whatever becomes
 * of the agent (docs/vminit.md), so nothing is saved, and the next agent finds a pod that runs.
 */
export class Quiesce {
  readonly #parts: Parts
  #freeze: Freeze | undefined
  readonly #queue = new SerialQueue()
  /** Calls under way that may write to disks. */
  readonly #working = new Set<{ readonly call: string }>()

  constructor(parts: Parts) {
    this.#parts = parts
    parts.os.freezer.onThawed(() => this.#thawed())
  }

  get frozen(): Frozen | undefined {
    if (this.#freeze === undefined) return undefined
    const { boundAtMs } = this.#freeze
    return { ...listed(this.#freeze), thawInMs: Math.max(0, Math.ceil(boundAtMs - this.#nowMs())) }
  }

  /** Runs a call. Throws FAILED_PRECONDITION when it is to be refused while the pod is frozen. */
  async serve<T>(call: string, whileFrozen: WhileFrozen, handle: () => Promise<T>): Promise<T> {
    if (whileFrozen === 'serve') return handle()
    if (whileFrozen === 'refuse' && this.#freeze !== undefined) {
      throw new AgentError('FAILED_PRECONDITION', `${call}: the pod is frozen, want Lifecycle/Thaw first`)
    }
    const working = { call }
    this.#working.add(working)
    try {
      // A dead disk must not keep the sandbox.
      if (whileFrozen === 'thaw')
        await this.thaw('end of the sandbox').catch((error) => this.#logNotThawed(error))
      return await handle()
    } finally {
      this.#working.delete(working)
    }
  }

  async quiesce(
    { timeoutMs }: QuiesceRequest,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<QuiesceResponse> {
    if (timeoutMs > LONGEST_MS) {
      throw new AgentError('INVALID_ARGUMENT', `timeout_ms: ${timeoutMs}, want at most ${LONGEST_MS}`)
    }
    return this.#queue.run(() => this.#quiesce(timeoutMs || LONGEST_MS, signal), signal)
  }

  /** Gives a freeze under way up. Throws INTERNAL that names the file systems which are not thawed. */
  async thaw(reason: ThawReason = 'call'): Promise<ThawResponse> {
    this.#freeze?.interrupt.abort(new AgentError('ABORTED', 'Quiesce: the pod is to be thawed'))
    const thaw = async () => ({
      wasFrozen: this.#freeze !== undefined && (await this.#thaw(this.#freeze, reason)),
    })
    return this.#queue.run(thaw, neverAborted)
  }

  /**
   * The guest goes on after it was restored. The bound begins anew, and file systems are thawed; containers too, unless they
   * are held until {@link Quiesce.ready}.
   */
  async resumed({ holdsContainers }: { readonly holdsContainers: boolean }): Promise<void> {
    if (this.#freeze === undefined) return
    if (holdsContainers) await this.#queue.run(() => this.#holdContainers(), neverAborted)
    else await this.thaw('resume')
  }

  /** Thaws what {@link Quiesce.resumed} has left. */
  async ready(): Promise<void> {
    if (this.#freeze !== undefined) await this.thaw('resume')
  }

  async #quiesce(timeoutMs: number, signal: AbortSignal): Promise<QuiesceResponse> {
    const { log, events } = this.#parts
    const beganMs = this.#nowMs()
    const freeze = this.#begin(timeoutMs)
    const given = AbortSignal.any([signal, freeze.interrupt.signal])
    try {
      await this.#hold(freeze)
      await this.#freezeContainers(freeze, given)
      await this.#freezeFileSystems(freeze, given)
      given.throwIfAborted()
    } catch (error) {
      await this.#thaw(freeze, 'call').catch((failure) => this.#logNotThawed(failure))
      throw error
    }
    freeze.phase = 'frozen'
    freeze.isTold = true
    const answer = listed(freeze)
    log.info('pod frozen', {
      containers: answer.containers.length,
      fileSystems: answer.fileSystems.join(' '),
      ms: Math.round(this.#nowMs() - beganMs),
    })
    events.add({ freezeChanged: { action: 'frozen', reason: '' } })
    return answer
  }

  #begin(timeoutMs: number): Freeze {
    if (this.#freeze !== undefined) {
      throw new AgentError('FAILED_PRECONDITION', 'the pod is frozen already, want Lifecycle/Thaw first')
    }
    for (const { call } of this.#working) {
      throw new AgentError('FAILED_PRECONDITION', `${call}: under way, and may write to disks`)
    }
    this.#freeze = {
      phase: 'freezing',
      timeoutMs,
      boundAtMs: this.#nowMs() + timeoutMs,
      containers: [],
      fileSystems: new Map(),
      interrupt: new AbortController(),
      isOver: false,
      isTold: false,
      reason: 'bound',
    }
    return this.#freeze
  }

  /** Gives vminit all that it thaws by, before anything is frozen. */
  async #hold(freeze: Freeze): Promise<void> {
    const { os, ownPaths, below } = this.#parts
    const mounts = await os.mounts.list()
    const found = diskFileSystems(mounts).filter(
      ({ mounts: [first] }) => below === undefined || isWithin(first.mountPoint, below),
    )
    refuseOwn(mounts, found, ownPaths)
    freeze.fileSystems = new Map(found.map((each, index) => [`file-system-${index}`, each]))
    freeze.containers = await this.#runningContainers()
    for (const [name, each] of freeze.fileSystems) await this.#holdFileSystem(name, each)
    const holds = freeze.containers.map(({ id, name, cgroup }) =>
      os.freezer
        .holdCgroup(name, cgroup.freezeFile)
        .catch((error) => fail(`container ${id}`, error, HOLD_FAILURES)),
    )
    await Promise.all(holds)
    await os.freezer.arm(freeze.timeoutMs)
    freeze.boundAtMs = this.#nowMs() + freeze.timeoutMs
  }

  /** By any of its mounts, because another mount may hide one. */
  async #holdFileSystem(name: string, fileSystem: DiskFileSystem): Promise<void> {
    const { mounts, freezer } = this.#parts.os
    let failure: unknown
    for (const mount of fileSystem.mounts) {
      try {
        if (fileSystem.isBelowServer) await mounts.reach(mount.mountPoint)
        await freezer.holdFileSystem(name, mount)
        return
      } catch (error) {
        failure = error
        // A dead server would make each of them wait.
        if (errnoOf(error) === 'ETIMEDOUT') break
      }
    }
    fail(`file system ${nameOf(fileSystem)}`, failure, HOLD_FAILURES)
  }

  /** Without those that are frozen already: a container that was paused stays so. */
  async #runningContainers(): Promise<readonly RunningContainer[]> {
    const running: RunningContainer[] = []
    for (const { id, state } of this.#parts.containers.list()) {
      if (!('parts' in state)) continue
      const { cgroup } = state.parts
      const exists = (await this.#parts.os.files.stat(cgroup.freezeFile)) !== undefined
      if (exists && !(await cgroup.isFrozen())) running.push({ id, name: `cgroup-${running.length}`, cgroup })
    }
    return running
  }

  async #freezeContainers({ containers, timeoutMs }: Freeze, given: AbortSignal): Promise<void> {
    const late = new AbortController()
    const { clock, freezer } = this.#parts.os
    const stopTimer = clock.startTimer(CONTAINERS_MS, () => late.abort())
    const signal = AbortSignal.any([given, late.signal])
    try {
      const freezes = containers.map(({ id, name, cgroup }) =>
        inStep('freeze', `container ${id}`, () =>
          cgroup.untilFrozen(() => freezer.freezeCgroup(name), signal),
        ),
      )
      for (const [index, outcome] of (await Promise.allSettled(freezes)).entries()) {
        if (outcome.status === 'fulfilled') continue
        given.throwIfAborted()
        const container = containers[index]
        if (container !== undefined && late.signal.aborted) throw await this.#notFrozen(container)
        if (errnoOf(outcome.reason) === 'ECANCELED') throw tooLate(`container ${container?.id}`, timeoutMs)
        throw outcome.reason
      }
    } finally {
      stopTimer()
    }
  }

  async #notFrozen({ id, cgroup }: RunningContainer): Promise<AgentError> {
    const pids = await waitingProcesses(this.#parts.os, cgroup).catch(() => [])
    const which = pids.length === 0 ? '' : `: no disk or server answers process ${pids.join(', ')}`
    const text = `container ${id}: not frozen within ${CONTAINERS_MS / 1000} s${which}`
    return new AgentError('FAILED_PRECONDITION', text)
  }

  async #freezeFileSystems(freeze: Freeze, given: AbortSignal): Promise<void> {
    const { clock, freezer } = this.#parts.os
    for (const [name, fileSystem] of freeze.fileSystems) {
      given.throwIfAborted()
      const subject = `file system ${nameOf(fileSystem)}`
      const leftMs = Math.max(0, freeze.boundAtMs - this.#nowMs()) + ANSWER_MS
      const late = () => tooLate(subject, freeze.timeoutMs)
      try {
        const frozen = inStep('freeze', nameOf(fileSystem), () => freezer.freeze(name))
        await withTimeout(clock, leftMs, abortable(frozen, given), late)
      } catch (error) {
        given.throwIfAborted()
        const errno = errnoOf(error)
        if (errno === 'ECANCELED' || errno === 'ETIMEDOUT') throw late()
        fail(subject, error, FREEZE_FAILURES)
      }
    }
  }

  /** Returns whether everything was frozen until now. */
  async #thaw(freeze: Freeze, reason: ThawReason): Promise<boolean> {
    const wasFrozen = freeze.phase === 'frozen' && !freeze.isOver
    freeze.phase = 'thawing'
    if (!freeze.isOver) freeze.reason = reason
    const { failed } = await this.#thawBy(freeze, 'all')
    return wasFrozen && failed.length === 0
  }

  /** Containers stay frozen until they are thawed, or the bound passes. */
  async #holdContainers(): Promise<void> {
    const freeze = this.#freeze
    if (freeze === undefined || freeze.phase !== 'frozen') return
    await this.#parts.os.freezer.arm(freeze.timeoutMs)
    // The bound has passed meanwhile, so nothing is held any more.
    if (freeze.isOver) {
      await this.#thawBy(freeze, 'all')
      return
    }
    freeze.boundAtMs = this.#nowMs() + freeze.timeoutMs
    await this.#thawBy(freeze, 'file systems')
    freeze.fileSystems = new Map()
    this.#parts.events.add({ freezeChanged: { action: 'file systems thawed', reason: 'resume' } })
  }

  async #thawBy(freeze: Freeze, what: 'all' | 'file systems'): Promise<Thawed> {
    const { clock, freezer } = this.#parts.os
    const late = new AbortController()
    const stopTimer = clock.startTimer(THAW_MS, () => late.abort())
    try {
      const outcome = await freezer.thaw(what, late.signal)
      const nameIn = (name: string) => {
        const fileSystem = freeze.fileSystems.get(name)
        return fileSystem === undefined ? name : nameOf(fileSystem)
      }
      for (const { name, errno } of outcome.failed)
        this.#parts.log.warn('file system was not frozen any more', { fileSystem: nameIn(name), errno })
      if (outcome.late.length === 0) return outcome
      const text = `file system ${outcome.late.map(nameIn).join(', ')}: not thawed within ${THAW_MS / 1000} s`
      throw new AgentError('INTERNAL', `${text}: its disk does not answer`)
    } finally {
      stopTimer()
    }
  }

  /** vminit says that nothing is frozen any more. */
  #thawed(): void {
    const freeze = this.#freeze
    if (freeze === undefined) return
    freeze.isOver = true
    if (freeze.phase === 'freezing') {
      freeze.interrupt.abort(tooLate('the pod', freeze.timeoutMs))
      return
    }
    this.#freeze = undefined
    if (!freeze.isTold) return
    const { reason, timeoutMs } = freeze
    this.#parts.log.log(reason === 'bound' ? 'warn' : 'info', 'pod thawed', { reason, timeoutMs })
    this.#parts.events.add({ freezeChanged: { action: 'thawed', reason } })
  }

  #logNotThawed(error: unknown): void {
    this.#parts.log.error('pod not thawed', { error: messageOf(error) })
  }

  #nowMs(): number {
    return this.#parts.os.clock.monotonicMs()
  }
}

function listed({ containers, fileSystems }: Freeze): QuiesceResponse {
  return {
    containers: containers.map(({ id }) => id),
    fileSystems: [...fileSystems.values()].map(({ mounts: [{ mountPoint }] }) => mountPoint),
  }
}

function tooLate(subject: string, ms: number): AgentError {
  return new AgentError('DEADLINE_EXCEEDED', `${subject}: not frozen within ${ms} ms`, { errno: 'ETIMEDOUT' })
}

type Failures = Readonly<Record<string, readonly [StatusCodeName, string]>>

const HOLD_FAILURES: Failures = {
  EPERM: ['FAILED_PRECONDITION', 'it holds /'],
  EBUSY: ['FAILED_PRECONDITION', 'vminit still thaws what was frozen before'],
  ENOSPC: ['RESOURCE_EXHAUSTED', 'vminit has room for 32 file systems and 1,024 containers'],
  ETIMEDOUT: ['FAILED_PRECONDITION', 'the server of a file system on the way to it does not answer'],
}

const FREEZE_FAILURES: Failures = {
  EBUSY: ['FAILED_PRECONDITION', 'frozen by another program already'],
  EOPNOTSUPP: ['FAILED_PRECONDITION', 'its type cannot be frozen'],
}

function fail(subject: string, error: unknown, failures: Failures): never {
  const errno = errnoOf(error) ?? ''
  const [code, text] = failures[errno] ?? ['INTERNAL', messageOf(error)]
  throw new AgentError(code, `${subject}: ${text}`, { cause: error, errno })
}
