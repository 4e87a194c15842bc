import { neverAborted, withTimeout } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { ProcessState } from '../../gen/state/container.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { processBeganNs } from '../../os/process/proc-stat.ts'
import { EMPTY_RESPONSE, type Outcomes } from '../../state/outcomes.ts'
import { type Cgroup, cgroupAt, usesCgroupV2 } from '../cgroup/cgroup.ts'
import type { ContainersCgroup } from '../cgroup/containers-cgroup.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { END_MS, notEnded } from '../process/launch.ts'
import type { ContainerProcess } from '../process/process.ts'
import { tellEnd } from '../process/process-events.ts'
import { ProcessTable } from '../process/process-table.ts'
import {
  isSentAgain,
  type RestoreProcessDependencies,
  restoreProcess,
  restoreStreams,
  whenSettled,
} from '../process/restore-process.ts'
import { programOf } from '../process/signal-process.ts'
import { forgetProcess } from '../process/wait-process.ts'
import { completeTerminal } from '../stdio/restore-stdio.ts'
import { discardStored, isConnectionOf } from '../stdio/stored-descriptors.ts'
import { bundleOf, StoredSpec } from './bundle.ts'
import type { Container, ContainerParts } from './container.ts'
import { type ContainerRecord, Phase } from './container-record.ts'
import type { CreateDependencies } from './create-container.ts'
import { endAndRemove, type RemoveDependencies } from './remove-container.ts'
import type { ActiveSandbox } from './sharing/active-sandbox.ts'
import { pinPidNamespace } from './sharing/shared-pid-namespace.ts'
import { hasPoststartHooks, runPoststartHooks } from './start-container.ts'

/** What going on with containers needs. */
export interface RestoreDependencies
  extends Omit<CreateDependencies, 'runtime' | 'os' | 'config'>,
    Omit<RemoveDependencies, 'runtime' | 'os' | 'containersCgroup'>,
    Omit<RestoreProcessDependencies, 'os' | 'config'> {
  readonly os: CreateDependencies['os']
  readonly config: CreateDependencies['config']
  readonly containersCgroup: CreateDependencies['containersCgroup'] & Pick<ContainersCgroup, 'holds'>
  readonly runtime: Pick<OciRuntime, 'adopt' | 'delete' | 'erase' | 'discardRun' | 'hasStarted' | 'runsEnded'>
  readonly oom: OomEvents
  readonly outcomes: Outcomes
}

/**
 * Whether the storages of a container stay attached for it: one that was about to be removed, or to be made and had come
 * to no process, does not go on.
 */
export function keepsStorages({ fields: { phase, init } }: ContainerRecord): boolean {
  return phase !== Phase.CREATING || init !== undefined
}

/**
 * Goes on with a container that an agent before this one had. A creation under way is finished if its caller still waits
 * for it and the runtime has made the process, and else undone; a start, a pause and a resume are told by what the runtime
 * has done; a removal is begun again, by its caller or else here.
 */
export async function restoreContainer(
  dependencies: RestoreDependencies,
  record: ContainerRecord,
  sandbox: ActiveSandbox,
): Promise<void> {
  const { os, log, containers, containersCgroup, runtime, outcomes, requests } = dependencies
  const { id, cgroupPath, phase, request } = record.fields
  const container = containers.addRestored(record)
  const cgroup = cgroupAt(os, cgroupPath, await usesCgroupV2(os), log)
  const restored = { dependencies, record, sandbox, cgroup, processes: [] }
  const isOpen = isSentAgain(requests, request)
  try {
    await runtime.runsEnded(id, (pid) => containersCgroup.holds(pid))
    let isDone = true
    if (phase !== Phase.CREATING) isDone = await goOn(restored, container)
    else if (!isOpen || !(await finishCreation(restored, container))) return await drop(restored, container)
    // What has not happened has no request any more, but for a start, which keeps its phase.
    if (isOpen && isDone && record.fields.request === request) outcomes.answer(request, EMPTY_RESPONSE)
  } catch (error) {
    log.critical('a container cannot be gone on with', { containerId: id, error: messageOf(error) })
    await drop(restored, container)
  }
}

/** Ends and removes a container, and all that it holds. Throws when its record cannot be removed. */
async function drop(restored: Restored, container: Container): Promise<void> {
  const { containers, containersCgroup } = restored.dependencies
  await undoCreation(restored)
  for (const process of restored.processes) {
    process.forgetExit()
    await process.stdio.close()
  }
  containers.drop(container)
  await containersCgroup.removeParents(container.cgroupPath, containers.cgroupPaths())
}

/** One container that this agent goes on with. */
interface Restored {
  readonly dependencies: RestoreDependencies
  readonly record: ContainerRecord
  readonly sandbox: ActiveSandbox
  readonly cgroup: Cgroup
  /** Those that this agent goes on with so far. */
  readonly processes: ContainerProcess[]
}

/** Goes on with a container that was made. Returns whether the call that has set its phase is done. */
async function goOn(restored: Restored, container: Container): Promise<boolean> {
  const { dependencies, record, sandbox } = restored
  const { log, runtime, oom, requests, outcomes } = dependencies
  const { id, phase, request, init } = record.fields
  if (init === undefined) throw new Error(`the record of container ${id} has no first process`)
  const parts = await partsOf(restored, init)
  const hasStarted = await runtime.hasStarted(id)
  if (phase === Phase.PAUSING || phase === Phase.RESUMING) await settlePause(restored, hasStarted)
  const name = record.fields.phase === Phase.PAUSED ? 'paused' : hasStarted ? 'running' : 'created'
  container.restore(parts, name, hasStarted)
  if (hasStarted && id !== sandbox.id) await oom.watch(id, parts, record.oomKills)
  // A call that is answered from its outcome does not begin the removal again.
  const isLeftToCaller = isSentAgain(requests, request) && outcomes.of(request) === undefined
  if (phase === Phase.REMOVING && !isLeftToCaller) {
    endAndRemove(dependencies, container, 0, neverAborted).catch((error: unknown) => {
      log.warn('container not removed', { containerId: id, error: messageOf(error) })
    })
  }
  if (phase !== Phase.STARTING) return phase !== Phase.REMOVING
  // Without the start the phase stays, and the call is carried out when it is sent again.
  if (!hasStarted) return false
  if (hasPoststartHooks(parts)) {
    container.resumeStart(parts, (interrupted) => runPoststartHooks(dependencies, { id, parts }, interrupted))
    return false
  }
  record.save({ phase: Phase.RUNNING })
  return true
}

/** Records what became of a pause or a resume under way. One that the runtime has not done is carried out again. */
async function settlePause({ record, cgroup }: Restored, hasStarted: boolean): Promise<void> {
  const isPause = record.fields.phase === Phase.PAUSING
  const isFrozen = await cgroup.isFrozen()
  // Some processes may be frozen.
  if (isPause && !isFrozen) await cgroup.thaw()
  const phase = isFrozen ? Phase.PAUSED : hasStarted ? Phase.RUNNING : Phase.CREATED
  record.save(isFrozen === isPause ? { phase } : { phase, request: 0n })
}

/** The parts of a container whose first process was made. */
async function partsOf(restored: Restored, init: ProcessState): Promise<ContainerParts> {
  const { dependencies, record, sandbox, cgroup } = restored
  const { os, config } = dependencies
  const { id, startContainer, poststart, pciAddresses, programBeforeStart, pidNamespace } = record.fields
  const first = restoreProcess(dependencies, init)
  restored.processes.push(first)
  const processes = new ProcessTable(id, first)
  if (init.forgotten) {
    processes.forget('', first)
    await first.stdio.close()
  } else tellEnd(dependencies, { containerId: id, execId: '', process: first, beganNs: init.beganNs, record })
  for (const process of record.execs) await restoreExec(restored, processes, process)
  forgetTold(restored, { init: first, processes, record })
  if (pidNamespace === sandbox.pidNamespace.path) {
    sandbox.pidNamespace.begin(id)
    sandbox.pidNamespace.made(id, first)
  }
  const release = releaseOf(restored)
  return {
    ...{ init: first, processes, record, cgroup, startContainer, poststart },
    spec: new StoredSpec(os.files, bundleOf(config.sharedRoot, id).config, record, record.readSpec()),
    programBeforeStart: programBeforeStart === '' ? undefined : programBeforeStart,
    pciAddresses: new Map(Object.entries(pciAddresses)),
    release: () => release.run(),
  }
}

/** Forgets the processes whose exit status a caller has got, or gets by an answer that is still to be written. */
function forgetTold(
  { dependencies }: Restored,
  parts: Pick<ContainerParts, 'init' | 'processes' | 'record'>,
): void {
  const { execs, fields } = parts.record
  for (const { execId, told } of fields.init === undefined ? execs : [fields.init, ...execs]) {
    for (const number of told) {
      whenSettled(dependencies.requests, number, (outcome) => {
        const process = parts.processes.find(execId)
        if (outcome === 'written' && process !== undefined) forgetProcess(parts, execId, process)
      })
    }
  }
}

/** Goes on with an added process, or with adding it if the caller still waits for that. */
async function restoreExec(
  { dependencies, record, cgroup, processes: all }: Restored,
  processes: ProcessTable,
  process: ProcessState,
): Promise<void> {
  const { outcomes, requests } = dependencies
  const isOpen = isSentAgain(requests, process.request)
  const made = process.pid === 0 ? await adopt(dependencies, process, cgroup) : process
  if (made === undefined || (process.pid === 0 && !(isOpen && hasStreams(dependencies, process)))) {
    await endUnwanted(dependencies, made ?? process, () => {
      if (made !== undefined) killIfAlive(dependencies.os, made.pid)
    })
    record.dropProcess(process.key)
    return
  }
  if (made !== process) record.saveProcess(made)
  await dependencies.runtime.discardRun(process.key)
  const restored = restoreProcess(dependencies, made)
  all.push(restored)
  processes.restore(process.execId, restored)
  const { execId, beganNs } = made
  tellEnd(dependencies, { containerId: record.fields.id, execId, process: restored, beganNs, record })
  if (isOpen) outcomes.answer(process.request, EMPTY_RESPONSE)
}

/** The process that a run of the agent before has made; undefined when it has made none. */
async function adopt(
  { os, runtime }: RestoreDependencies,
  process: ProcessState,
  cgroup: Cgroup,
): Promise<ProcessState | undefined> {
  const isMember = (pid: number) => cgroup.holds(pid)
  const pid = await runtime.adopt({ key: process.key, isMember })
  if (pid === undefined) return undefined
  return { ...process, pid, beganNs: await processBeganNs(os, pid, process.beganNs) }
}

/** Whether the streams of a process that was being made can be gone on with: its terminal may be lost. */
function hasStreams({ os }: RestoreDependencies, { key, hasTerminal }: ProcessState): boolean {
  return !hasTerminal || completeTerminal(os, key)
}

/** Ends by `kill` a process that no call has been told of, and closes its streams. */
async function endUnwanted(
  dependencies: RestoreDependencies,
  process: ProcessState,
  kill: () => Promise<void> | void,
): Promise<void> {
  const { os, runtime, log, requests } = dependencies
  if (isSentAgain(requests, process.request)) {
    // The call that is sent again makes another process, which gets the connections.
    await discardStored(os.descriptors, os.streams, (name) => isConnectionOf(process.key, name))
  }
  if (process.pid === 0) {
    await kill()
    await restoreStreams(dependencies, process).close()
  } else {
    // Before the kill: what is adopted later may have been forgotten.
    const restored = restoreProcess(dependencies, process)
    await kill()
    await withTimeout(os.clock, END_MS, restored.ended, () => notEnded(process.pid)).catch(
      (error: unknown) => {
        log.warn('process not ended', { pid: process.pid, error: messageOf(error) })
      },
    )
    restored.forgetExit()
    await restored.stdio.close()
  }
  await runtime.discardRun(process.key)
}

/** Finishes a creation of which the runtime has made the process. Returns whether that can be done. */
async function finishCreation(restored: Restored, container: Container): Promise<boolean> {
  const { dependencies, record, sandbox, cgroup } = restored
  const { os } = dependencies
  const { init, hasSharedMounts } = record.fields
  if (init === undefined || hasSharedMounts) return false
  const made = init.pid === 0 ? await adopt(dependencies, init, cgroup) : init
  if (made === undefined || (init.pid === 0 && !hasStreams(dependencies, init))) return false
  record.saveProcess(made)
  await dependencies.runtime.discardRun(made.key)
  const { path } = sandbox.pidNamespace
  if (record.fields.pidNamespace === path && !(await isMounted(os, path))) {
    // Its undo is that of the container.
    await pinPidNamespace({ os, target: path, pid: made.pid, onRemove: new UndoList(dependencies.log) })
  }
  record.save({ programBeforeStart: (await programOf(os, made.pid)) ?? '' })
  container.publish(await partsOf(restored, made))
  return true
}

/** Undoes a creation under way. What was not done is skipped, and each step is tried. Never rejects. */
async function undoCreation(restored: Restored): Promise<void> {
  const { dependencies, record, cgroup } = restored
  const { os, runtime, devices } = dependencies
  const { id, init, sysctls, phase, vfioDevices } = record.fields
  const onRemove = releaseOf(restored)
  // A container that was made keeps them.
  if (phase === Phase.CREATING) onRemove.add('devices', () => devices.bindBack(vfioDevices))
  for (const { path, before } of sysctls) onRemove.add(`sysctl ${path}`, () => os.files.write(path, before))
  onRemove.add('cgroup', () => cgroup.remove())
  onRemove.add('runtime', () => runtime.erase(id))
  const killAll = () => cgroup.killAll()
  onRemove.add('processes', () => (init === undefined ? killAll() : endUnwanted(dependencies, init, killAll)))
  await onRemove.run()
}

/** Releases what a container holds besides the runtime's state. */
function releaseOf({ dependencies, record, sandbox }: Restored): UndoList {
  const { os, log, config, storage, sysctls } = dependencies
  const { id, storages: mountPoints, pidNamespace } = record.fields
  const { folder, rootfs } = bundleOf(config.sharedRoot, id)
  const onRemove = new UndoList(log)
  onRemove.add('shared pid namespace', () => sandbox.pidNamespace.gone(id))
  onRemove.add('bundle', () => os.files.removeTree(folder))
  // A removal under way has detached some of them.
  const held = () => mountPoints.filter((mountPoint) => storage.isUsed(mountPoint))
  if (keepsStorages(record)) onRemove.add('storages', () => storage.release({ mountPoints: held() }))
  sysctls.restore(record.fields.sysctls, onRemove)
  if (!storage.isUsed(rootfs)) onRemove.add('root mount', () => unmountIfMounted(os, rootfs))
  if (pidNamespace !== '') {
    onRemove.add('pid namespace file', () => os.files.removeTree(pidNamespace))
    onRemove.add('pid namespace mount', () => unmountIfMounted(os, pidNamespace))
  }
  return onRemove
}

type MountOs = Pick<RestoreDependencies['os'], 'mounts'>

async function unmountIfMounted(os: MountOs, path: string): Promise<void> {
  if (await isMounted(os, path)) await os.mounts.unmount(path, { detach: true })
}

async function isMounted({ mounts }: MountOs, path: string): Promise<boolean> {
  return (await mounts.list()).some(({ mountPoint }) => mountPoint === path)
}
