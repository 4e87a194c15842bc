import { withTimeout } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { UndoList } from '../../base/undo.ts'
import type { ProcessState } from '../../gen/state/container.ts'
import { usesCgroupV2 } from '../../os/cgroup/hierarchies.ts'
import { isMountPoint } from '../../os/files/mounts.ts'
import type { Os } from '../../os/os.ts'
import { killIfAlive } from '../../os/process/kill-if-alive.ts'
import { processStartNs } from '../../os/process/proc-stat.ts'
import { NO_CALLER } from '../../state/request.ts'
import type { RequestJournal } from '../../state/request-journal.ts'
import { type Cgroup, cgroupAt } from '../cgroup/cgroup.ts'
import type { ContainersCgroup } from '../cgroup/containers-cgroup.ts'
import type { OomEvents } from '../cgroup/oom-events.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { END_MS, notEnded } from '../process/launch.ts'
import type { ContainerProcess } from '../process/process.ts'
import { tellEnd } from '../process/process-events.ts'
import { ProcessTable } from '../process/process-table.ts'
import { type RestoreProcessContext, restoreProcess, restoreStreams } from '../process/restore-process.ts'
import { programOf } from '../process/signal-process.ts'
import { completeTerminal } from '../stdio/restore-stdio.ts'
import { discardStored, isConnectionOf } from '../stdio/stored-descriptors.ts'
import { bundleOf, removeBundle, StoredSpec } from './bundle.ts'
import type { Container, ContainerParts } from './container.ts'
import { type ContainerRecord, Phase } from './container-record.ts'
import type { CreateContext } from './create-container.ts'
import { type ContainerAction, chosen, type Question, RECOVERY } from './recovery-table.ts'
import { endAndRemove, type RemoveContext } from './remove-container.ts'
import type { ActiveSandbox } from './sharing/active-sandbox.ts'
import { pinPidNamespace } from './sharing/shared-pid-namespace.ts'
import { hasPoststartHooks, runPoststartHooks } from './start-container.ts'

export interface RestoreContext
  extends Omit<CreateContext, 'runtime' | 'os' | 'config'>,
    Omit<RemoveContext, 'runtime' | 'os' | 'containersCgroup' | 'requests'>,
    Omit<RestoreProcessContext, 'os' | 'config' | 'requests'> {
  readonly os: CreateContext['os']
  readonly config: CreateContext['config']
  readonly containersCgroup: CreateContext['containersCgroup'] & Pick<ContainersCgroup, 'holds'>
  readonly runtime: Pick<OciRuntime, 'adopt' | 'delete' | 'erase' | 'discardRun' | 'hasStarted' | 'runsEnded'>
  readonly oom: OomEvents
  readonly requests: RequestJournal
}

/** Whether the container's storages stay attached: not those of a creation that had no first process yet. */
export function keepsStorages({ fields: { phase, init } }: ContainerRecord): boolean {
  return phase !== Phase.CREATING || init !== undefined
}

/** Carries out the action of {@link RECOVERY} for a container. A container that cannot be restored is ended and removed. */
export async function restoreContainer(
  dependencies: RestoreContext,
  record: ContainerRecord,
  sandbox: ActiveSandbox,
): Promise<void> {
  const { os, log, containers, containersCgroup, runtime } = dependencies
  const { id } = record
  const { cgroupPath, phase } = record.fields
  const container = containers.addRestored(record)
  const cgroup = cgroupAt(os, cgroupPath, await usesCgroupV2(os), log)
  const restored = { dependencies, record, sandbox, container, cgroup, processes: [] }
  try {
    const runs = { id: record.key, isStarting: phase === Phase.STARTING }
    await runtime.runsEnded(runs, (pid) => containersCgroup.holds(pid))
    const action = await chosen(RECOVERY.container, phase, (question) => LOOK_UPS[question](restored))
    await ACTIONS[action](restored)
  } catch (error) {
    log.critical('container not restored', { containerId: id, error: messageOf(error) })
    await drop(restored)
  }
}

interface Restored {
  readonly dependencies: RestoreContext
  readonly record: ContainerRecord
  readonly sandbox: ActiveSandbox
  readonly container: Container
  readonly cgroup: Cgroup
  /** The processes that were restored so far. */
  readonly processes: ContainerProcess[]
}

const LOOK_UPS: Readonly<Record<Question, (restored: Restored) => boolean | Promise<boolean>>> = {
  'sent again': ({ dependencies, record }) => dependencies.requests.isSentAgain(record.fields.request),
  answered: ({ dependencies, record }) => dependencies.requests.of(record.fields.request) !== undefined,
  made: isMade,
  started: ({ dependencies, record }) => dependencies.runtime.hasStarted(record.key),
  frozen: ({ cgroup }) => cgroup.isFrozen(),
}

const ACTIONS: Readonly<Record<ContainerAction, (restored: Restored) => Promise<unknown>>> = {
  undo: drop,
  'finish the creation': (restored) => finishCreation(restored).then(() => answer(restored)),
  'go on': (restored) => goOn(restored).then(() => answer(restored)),
  'finish the start': finishStart,
  'leave to the call': goOn,
  // The pause may have frozen some processes.
  'thaw, leave to the call': (restored) => restored.cgroup.thaw().then(() => goOn(restored)),
  // The answer waits for it: a caller may use the id for another container from then on.
  'finish the removal': (restored) => goOn(restored).then(() => removeAnswered(restored)),
  remove: (restored) => goOn(restored).then(() => remove(restored)),
}

/** The record keeps the call's number, by which another agent sees that it is answered. */
async function removeAnswered({ dependencies, record, container }: Restored): Promise<void> {
  await endAndRemove(dependencies, container, { ...NO_CALLER, number: record.fields.request })
}

/** Records that the call which set the phase is done, so that it is answered when it is sent again. */
function answer({ dependencies: { requests }, record: { fields } }: Restored): void {
  requests.done(fields.request)
}

/** Ends and removes a container, and all that it holds. Throws when the record cannot be removed. */
async function drop(restored: Restored): Promise<void> {
  const { dependencies, container } = restored
  const { containers, containersCgroup } = dependencies
  await undoCreation(restored)
  await dependencies.oom.end(container.record.key)
  for (const process of restored.processes) {
    process.forgetExit()
    await process.stdio.close()
  }
  containers.drop(container)
  await containersCgroup.removeParents(container.cgroupPath, containers.cgroupPaths())
}

/** Restores a container in the state that the runtime and the cgroup report. */
async function goOn(restored: Restored): Promise<ContainerParts> {
  const { dependencies, record, container } = restored
  const hasStarted =
    record.fields.phase === Phase.RUNNING || (await dependencies.runtime.hasStarted(record.key))
  const parts = await partsOf(restored, hasStarted)
  const isFrozen = await parts.cgroup.isFrozen()
  container.restore(parts, isFrozen ? 'paused' : hasStarted ? 'running' : 'created', hasStarted)
  return parts
}

/** Removes the container in the background. */
function remove({ dependencies, container }: Restored): void {
  endAndRemove(dependencies, container, NO_CALLER).catch((error: unknown) => {
    dependencies.log.warn('container not removed', { containerId: container.id, error: messageOf(error) })
  })
}

/** Restores a container whose program was started, and runs the poststart hooks that are left. */
async function finishStart(restored: Restored): Promise<void> {
  const { dependencies, container } = restored
  const parts = await goOn(restored)
  if (!hasPoststartHooks(parts)) return answer(restored)
  const rest = (interrupted: AbortSignal) =>
    runPoststartHooks(dependencies, { id: container.id, parts }, interrupted)
  dependencies.requests.resume(container.record.fields.request, container.resumeStart(parts, rest))
}

async function partsOf(restored: Restored, hasStarted: boolean): Promise<ContainerParts> {
  const { dependencies, record, sandbox, cgroup } = restored
  const { os, config } = dependencies
  const init = initOf(record)
  const { startContainer, poststart, pciAddresses, programBeforeStart, pidNamespace } = record.fields
  const first = restoreProcess(dependencies, init)
  restored.processes.push(first)
  // Watch first: the events of ends say whether the container ran out of memory.
  if (hasStarted && record.id !== sandbox.id)
    await dependencies.oom.watch({ cgroup, init: first, record }, record.oomKills)
  const processes = new ProcessTable(record, first)
  if (init.forgotten) {
    processes.forget(first)
    await first.stdio.close()
  } else tellEnd(dependencies, { execId: '', process: first, beganNs: init.beganNs, record })
  for (const process of record.execs) await restoreExec(restored, processes, process)
  if (pidNamespace === sandbox.pidNamespace.path) {
    sandbox.pidNamespace.begin(record)
    sandbox.pidNamespace.made(record.key, first)
  }
  const release = releaseOf(restored)
  return {
    init: first,
    processes,
    record,
    cgroup,
    startContainer,
    poststart,
    spec: new StoredSpec(os.scratch, bundleOf(config.sharedRoot, record.key).config, record),
    programBeforeStart: programBeforeStart === '' ? undefined : programBeforeStart,
    pciAddresses: new Map(Object.entries(pciAddresses)),
    release: () => release.run(),
  }
}

/** Carries out the action of {@link RECOVERY} for an added process. */
async function restoreExec(
  restored: Restored,
  processes: ProcessTable,
  process: ProcessState,
): Promise<void> {
  const { dependencies, record } = restored
  const { os, requests, runtime } = dependencies
  const { key, execId, request } = process
  const found = await adopt(restored, process)
  const action = await chosen(RECOVERY.process, process.pid === 0 ? 'adding' : 'added', (question) =>
    question === 'sent again' ? requests.isSentAgain(request) : isWhole(dependencies, found),
  )
  if (action === 'end') {
    await endUnwanted(dependencies, found, () => {
      if (found.pid !== 0) killIfAlive(os, found.pid)
    })
    record.dropProcess(key)
    return
  }
  if (found !== process) record.saveProcess(found)
  await runtime.discardRun(key)
  const added = restoreProcess(dependencies, found)
  restored.processes.push(added)
  processes.restore(execId, added)
  tellEnd(dependencies, {
    execId,
    process: added,
    beganNs: found.beganNs,
    record,
  })
  requests.done(request)
}

/** Adds the pid if a run of the previous agent has made the process. */
async function adopt({ dependencies, cgroup }: Restored, process: ProcessState): Promise<ProcessState> {
  const { os, runtime } = dependencies
  if (process.pid !== 0) return process
  const isMember = (pid: number) => cgroup.holds(pid)
  const pid = await runtime.adopt({ key: process.key, isMember })
  if (pid === undefined) return process
  return { ...process, pid, beganNs: (await processStartNs(os.files, pid)) ?? process.beganNs }
}

/** Whether the runtime has made the process, and its terminal was not lost. */
function isWhole({ os }: RestoreContext, { pid, key, hasTerminal }: ProcessState): boolean {
  return pid !== 0 && (!hasTerminal || completeTerminal(os, key))
}

/** Ends a process by `kill`, and closes its streams. No caller knows of the process. */
async function endUnwanted(
  dependencies: RestoreContext,
  process: ProcessState,
  kill: () => Promise<void> | void,
): Promise<void> {
  const { os, runtime, log, requests } = dependencies
  if (requests.isSentAgain(process.request)) {
    // The call is sent again and makes another process, for which it connects to the ports again.
    await discardStored(os.descriptors, os.streams, (name) => isConnectionOf(process.key, name))
  }
  if (process.pid === 0) {
    await kill()
    await restoreStreams(dependencies, process).close()
  } else {
    // Adopt the exit before killing: `vminit` drops every exit that was not adopted.
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

/** Whether the runtime has made the first process of a creation that can be finished. Records the process. */
async function isMade(restored: Restored): Promise<boolean> {
  const { dependencies, record } = restored
  const { init, hasSharedMounts } = record.fields
  if (init === undefined || hasSharedMounts) return false
  const found = await adopt(restored, init)
  if (init.pid === 0 && !isWhole(dependencies, found)) return false
  record.saveProcess(found)
  return true
}

async function finishCreation(restored: Restored): Promise<void> {
  const { dependencies, record, sandbox, container } = restored
  const { os, log, runtime } = dependencies
  const init = initOf(record)
  const { key, pid } = init
  await runtime.discardRun(key)
  const { path } = sandbox.pidNamespace
  if (record.fields.pidNamespace === path && !(await isMountPoint(os, path))) {
    // This undo list is not needed: `releaseOf` unmounts the namespace with the container.
    await pinPidNamespace({ os, target: path, pid, onRemove: new UndoList(log) })
  }
  const programBeforeStart = await programOf(os, pid)
  container.publish({ ...(await partsOf(restored, false)), programBeforeStart }, init)
}

function initOf({ id, fields: { init } }: ContainerRecord): ProcessState {
  if (init === undefined) throw new Error(`the record of container ${id} has no first process`)
  return init
}

/** Tries to undo every step of a creation; steps that were not done are skipped. Never rejects. */
async function undoCreation(restored: Restored): Promise<void> {
  const { dependencies, record, cgroup } = restored
  const { os, runtime, devices } = dependencies
  const { init, sysctls, phase, vfioDevices } = record.fields
  const onRemove = releaseOf(restored)
  // What a container that was made has changed in the guest stays.
  if (phase === Phase.CREATING) {
    onRemove.add('devices', () => devices.bindBack(vfioDevices))
    for (const { path, before } of sysctls) onRemove.add(`sysctl ${path}`, () => os.files.write(path, before))
  }
  onRemove.add('cgroup', () => cgroup.remove())
  onRemove.add('runtime', () => runtime.erase(record.key))
  const killAll = () => cgroup.killAll()
  onRemove.add('processes', () => (init === undefined ? killAll() : endUnwanted(dependencies, init, killAll)))
  await onRemove.run()
}

/** The undo of what a container holds besides the runtime's state. */
function releaseOf({ dependencies, record, sandbox }: Restored): UndoList {
  const { os, log, config, storage, sysctls } = dependencies
  const { storages: mountPoints, pidNamespace } = record.fields
  const bundle = bundleOf(config.sharedRoot, record.key)
  const onRemove = new UndoList(log)
  onRemove.add('shared pid namespace', () => sandbox.pidNamespace.gone(record.key))
  onRemove.add('bundle', () => removeBundle(os, bundle))
  // The previous agent's removal may have detached some of them.
  const held = () => mountPoints.filter((mountPoint) => storage.isUsed(mountPoint))
  if (keepsStorages(record)) onRemove.add('storages', () => storage.release({ mountPoints: held() }))
  sysctls.restore(record.fields.sysctls, onRemove)
  if (!storage.isUsed(bundle.rootfs)) onRemove.add('root mount', () => unmountIfMounted(os, bundle.rootfs))
  if (pidNamespace !== '') {
    onRemove.add('pid namespace file', () => os.files.removeTree(pidNamespace))
    onRemove.add('pid namespace mount', () => unmountIfMounted(os, pidNamespace))
  }
  return onRemove
}

async function unmountIfMounted(os: Pick<Os, 'mounts'>, path: string): Promise<void> {
  if (await isMountPoint(os, path)) await os.mounts.unmount(path, { detach: true })
}
