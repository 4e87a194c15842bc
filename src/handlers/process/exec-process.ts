import { neverAborted, withTimeout } from '../../base/abort.ts'
import { AgentError } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { ExecProcessRequest } from '../../gen/agent.ts'
import type { Process } from '../../gen/oci.ts'
import { checkProcess } from '../../oci/check/check-process.ts'
import type { OnDeviation } from '../../oci/deviation.ts'
import { supportedProcess } from '../../oci/guest-support.ts'
import { inheritProcess } from '../../oci/inherit-process.ts'
import { normalizeProcess } from '../../oci/normalize-spec.ts'
import { withGuestPciAddresses } from '../../oci/pci-environment.ts'
import type { Clock } from '../../os/clock.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { parentPid, parseStartNs } from '../../os/process/proc-stat.ts'
import type { Call } from '../../state/request.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { connectStdio, END_MS, type LaunchContext, notEnded, prepareLaunch } from './launch.ts'
import { logDeviation } from './log-deviation.ts'
import { newProcess, type ProcessOwner, type ProcessOwners } from './owner.ts'
import type { ContainerProcess } from './process.ts'
import { type ProcessEventContext, tellEnd } from './process-events.ts'
import { askedOf, processSupport } from './process-support.ts'
import type { Reservation } from './process-table.ts'

/**
 * How long the runtime may run on after the caller gave up. A runtime that is killed between making the process and
 * writing its pid leaves an untracked process.
 */
const GRACE_MS = 2000

/** ExecProcess: starts a process in a container. A failed step, an abort or a removal of the container undoes all steps. */
export async function execProcess(
  dependencies: LaunchContext &
    ProcessEventContext & {
      readonly os: LaunchContext['os'] & Pick<Os, 'files' | 'scratch'>
      readonly containers: Pick<ProcessOwners, 'waitForLiving'>
      readonly runtime: Pick<OciRuntime, 'exec' | 'discardRun'>
    },
  request: ExecProcessRequest,
  call: Call,
): Promise<void> {
  const { os, log, containers, runtime, keys } = dependencies
  const onDeviation = logDeviation(log, 'debug', {
    containerId: request.containerId,
    execId: request.execId,
  })
  const checked = checkedProcess(request, onDeviation)
  const requested = supportedProcess(checked, await processSupport(os, askedOf(checked)), onDeviation)
  const container = await containers.waitForLiving(request.containerId, call.signal)
  const process = processIn(container, requested)
  const ends = new Ends(os.clock)
  const { ending } = ends
  const reservation = container.processes.reserve(request.execId, ends.now)
  const onFailure = new UndoList(log)
  onFailure.add('reservation', () => reservation.abandon())
  ends.follow(call.signal)
  try {
    ending.throwIfAborted()
    const hasTerminal = process.Terminal
    const stdio = { ports: request, hasTerminal, onFailure }
    const connections = await connectStdio(dependencies, stdio, { ...call, signal: ending })
    // The init may have moved to a lower cgroup: on cgroup v2, a cgroup with enabled controllers holds no processes.
    const cgroup = await container.cgroup.innerPathOf(container.init.pid)
    const key = keys.next()
    const launch = await prepareLaunch(dependencies, { key, hasTerminal, connections, onFailure })
    const recorded = newProcess(os, request.execId, { key, hasTerminal, request: call.number })
    let added: ContainerProcess
    let { beganNs } = recorded
    try {
      container.record.saveProcess(recorded)
      onFailure.add('record', () => container.record.dropProcess(key))
      let stat = ''
      const isMember = async (pid: number) => {
        if (launch.hasEnded(pid)) return true
        const seen = await container.cgroup.lookAt(pid)
        stat = seen.stat
        return seen.isMember
      }
      const { current: spec } = container.spec
      const { streams } = launch
      const containerId = container.record.key
      const addition = { key, containerId, process, streams, spec, cgroup, isMember }
      const outcome = await runtime.exec(addition, ends.killing)
      if (outcome.pid === undefined) {
        onFailure.add('untracked process', () => killUntrackedProcesses(os, container, reservation))
      }
      added = await launch.follow(outcome)
      if (stat !== '') beganNs = parseStartNs(stat)
      container.record.saveProcess({ ...recorded, pid: added.pid, beganNs })
    } finally {
      await launch.close()
      await runtime.discardRun(key)
    }
    ending.throwIfAborted()
    reservation.publish(added)
    const { execId } = request
    const containerId = container.record.id
    dependencies.events.add({ processStarted: { containerId, execId, pid: added.pid } })
    tellEnd(dependencies, { execId, process: added, beganNs, record: container.record })
  } catch (error) {
    await onFailure.run()
    throw error
  } finally {
    ends.stop()
  }
}

/** Throws INTERNAL without a process, INVALID_ARGUMENT for a field that cannot be right. */
function checkedProcess(request: ExecProcessRequest, onDeviation: OnDeviation): Process {
  if (request.process === undefined) {
    throw new AgentError('INTERNAL', 'Unable to parse process from ExecProcessRequest', { fault: 'caller' })
  }
  const process = normalizeProcess(request.process, onDeviation)
  checkProcess(process)
  return process
}

/** Adds what the process inherits from the container, and the guest's addresses of PCI devices. */
function processIn({ spec, pciAddresses }: ProcessOwner, requested: Process): Process {
  const Env = withGuestPciAddresses(requested.Env, pciAddresses)
  return inheritProcess({ ...requested, Env }, spec.current.Process)
}

/** What ends an exec: the caller, who gives the runtime {@link GRACE_MS}, or a removal of the container. */
class Ends {
  readonly #ending = new AbortController()
  readonly #killing = new AbortController()
  readonly #clock: Clock
  #stop = (): void => {}

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Ends the steps. */
  get ending(): AbortSignal {
    return this.#ending.signal
  }

  /** Kills the runtime. */
  get killing(): AbortSignal {
    return this.#killing.signal
  }

  readonly now = (reason: AgentError): void => {
    this.#ending.abort(reason)
    this.#killing.abort(reason)
  }

  /** Ends with `signal`, until {@link stop}. */
  follow(signal: AbortSignal): void {
    let stopTimer = () => {}
    const onAbort = () => {
      this.#ending.abort(signal.reason)
      stopTimer = this.#clock.startTimer(GRACE_MS, () => this.#killing.abort(signal.reason))
    }
    this.#stop = () => {
      signal.removeEventListener('abort', onAbort)
      stopTimer()
    }
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
  }

  stop(): void {
    this.#stop()
  }
}

type SearchOs = Pick<Os, 'exits' | 'files' | 'system'>

/** The undo of an exec: kills processes that the runtime added without reporting a pid. Throws INTERNAL if they live on. */
async function killUntrackedProcesses(
  os: SearchOs & Pick<Os, 'clock'>,
  { init, processes, cgroup }: Pick<ProcessOwner, 'init' | 'processes' | 'cgroup'>,
  reservation: Pick<Reservation, 'searchUntracked'>,
): Promise<void> {
  reservation.searchUntracked()
  const search = async () => {
    let members = await cgroup.members()
    // List the members only while no exec is in flight: a process that is just being added is not tracked yet.
    while (await processes.added()) members = await cgroup.members()
    const tracked = new Set([init, ...processes.tracked()].map(({ pid }) => pid))
    await killUntracked(os, members, tracked)
  }
  const killed = processes.untrackedSearch.run(search, neverAborted)
  await withTimeout(os.clock, END_MS, killed, () => notEnded('without a known pid'))
}

/** Kills the untracked `members` that vminit is the parent of, because a runtime made them. Resolves when they are reaped. */
export async function killUntracked(
  os: SearchOs,
  members: readonly number[],
  tracked: ReadonlySet<number>,
): Promise<void> {
  // Watch before the search, so that no exit of a process that it finds is missed.
  const watch = os.exits.watch()
  try {
    const vminit = await parentPid(os.files, 'self')
    const exits: Promise<unknown>[] = []
    for (const pid of members) {
      if (tracked.has(pid) || (await parentPid(os.files, String(pid))) !== vminit) continue
      exits.push(watch.exitOf(pid))
      killIfAlive(os, pid)
    }
    await Promise.all(exits)
  } finally {
    watch.close()
  }
}
