import { deadlineExceeded, withTimeout } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Taken } from '../../state/request.ts'
import { type ContainerRecord, readContainerRecords } from '../container/container-record.ts'
import { chosen, RECOVERY, type SandboxAction } from '../container/recovery-table.ts'
import { keepsStorages, restoreContainer } from '../container/restore-container.ts'
import { forgetProcess } from '../process/wait-process.ts'
import { discardStored, isOfProcess } from '../stdio/stored-descriptors.ts'
import type { SandboxContext } from './context.ts'
import { cleanUpAfterCrash } from './crash-recovery.ts'
import { restoredSandbox } from './create-sandbox.ts'
import { undoRename } from './rename.ts'
import { Phase, readSandboxRecord, SandboxRecord } from './sandbox-record.ts'

/**
 * Restores the sandbox and the containers of the previous agent. Must be called once, before requests are served. Removes a
 * container that cannot be restored. If anything else cannot be restored, records that the sandbox is lost, and throws
 * INTERNAL: this agent has restored a part and must end, and the next agent removes everything.
 */
export async function restoreSandbox(context: SandboxContext): Promise<void> {
  const { log, requests, config, state, sandboxState } = context
  if (!config.restarted) return
  try {
    context.ports.restore()
    const record = readSandboxRecord(state)
    const action = record && (await chosen(RECOVERY.sandbox, record.fields.phase, () => false))
    if (action === 'remove all') {
      await cleanUpAfterCrash(context)
      sandboxState.restore('lost')
    } else {
      log.warn('agent restarted: sandbox restored', await restoreAll(context, record, action))
    }
    context.ports.restored()
    requests.settleAll(context.hostConnections)
    context.hangups.restore(context, context.containers.made())
  } catch (error) {
    log.critical('saved state not restored', { error: messageOf(error) })
    new SandboxRecord(state).save({ phase: Phase.LOST })
    throw new AgentError('INTERNAL', `saved state not restored: ${messageOf(error)}`)
  }
  requests.restore({
    exit: (key) => toldExit(context, key),
    outOfMemory: (event) => context.oom.queue.taken(event),
  })
}

/** An exit status that an answer of the previous agent contains. The delivery forgets the process. */
function toldExit({ containers }: SandboxContext, key: string): Taken {
  const forget = () => {
    for (const { state } of containers.list()) {
      if (!('parts' in state)) continue
      const { parts } = state
      for (const process of parts.processes.tracked()) if (process.key === key) forgetProcess(parts, process)
    }
  }
  return { delivered: forget, dropped: () => {} }
}

async function restoreAll(
  context: SandboxContext,
  sandboxRecord: SandboxRecord | undefined,
  action: SandboxAction | undefined,
): Promise<{ readonly sandbox: string; readonly containers: number }> {
  const { os, state, storage, containers, keys, sandboxState, requests } = context
  const { names } = containers
  const records = readContainerRecords({ state, answers: requests, names })
  names.restore(records.map(({ fields }) => fields))
  requests.read()
  context.oom.queue.restore()
  for (const name of os.descriptors.names()) keys.skip(name)
  for (const { fields, execs } of records) {
    for (const process of [fields.init, ...execs]) keys.skip(process?.key ?? '')
  }
  const { request = 0n, storages = [], id = '' } = sandboxRecord?.fields ?? {}
  const isUndone = action === 'undo'
  await storage.restore(referencesOf(records.filter(keepsStorages), isUndone ? [] : storages))
  const sandbox = sandboxRecord && restoredSandbox(context, sandboxRecord)
  if (action === 'stop') {
    sandboxState.restore('destroyed')
    stopWhenAnswered(context, request)
    return { sandbox: '', containers: 0 }
  }
  sandboxState.restore(isUndone ? 'none' : (sandbox ?? 'none'))
  if (action === 'go on') requests.done(request)
  requests.done(names.request)
  const active = sandboxState.active()
  await context.fileCopies.restore()
  const restore = (record: ContainerRecord) => restoreContainer(context, record, active)
  const others = records.filter((record) => !isRestoredAlone(record))
  for (const record of records.filter(isRestoredAlone).toSorted(makersFirst)) await restore(record)
  await Promise.all(others.map(restore))
  if (names.before !== undefined) await undoRename(context, sandbox)
  void context.oom.lookForUnnotified(os.clock)
  // Discard the stored descriptors that no restored process uses: those of hooks and of unfinished creations.
  await discardStored(os.descriptors, os.streams, isOfProcess)
  await context.runtime.discardAllRuns()
  if (isUndone) {
    await sandbox?.onDestroy.run()
    sandboxRecord?.remove()
  }
  return { sandbox: names.sandboxId ?? id, containers: containers.list().length }
}

/** How long the agent waits for the answers to requests that are sent again, because the broker does not report all. */
const ANSWER_MS = 1000

/** Stops once DestroySandbox (`request`) and the other requests are answered, because a stop ends the connections. */
function stopWhenAnswered({ os, oom, requests, onDestroyed }: SandboxContext, request: bigint): void {
  requests.done(request)
  oom.queue.close()
  void withTimeout(os.clock, ANSWER_MS, requests.settled(), deadlineExceeded).then(onDestroyed, onDestroyed)
}

function makersFirst(one: ContainerRecord, other: ContainerRecord): number {
  return Number(other.fields.pidNamespace !== '') - Number(one.fields.pidNamespace !== '')
}

/** Others may share its pid namespace, or it may need a run of the runtime: many runs at once take much memory. */
function isRestoredAlone({ fields: { pidNamespace, phase } }: ContainerRecord): boolean {
  const table: { readonly [phase: number]: unknown } = RECOVERY.container
  return pidNamespace !== '' || table[phase] !== 'go on'
}

function referencesOf(
  records: readonly ContainerRecord[],
  ofSandbox: readonly string[],
): ReadonlyMap<string, number> {
  const references = new Map<string, number>()
  for (const mountPoint of [...ofSandbox, ...records.flatMap(({ fields }) => fields.storages)]) {
    references.set(mountPoint, (references.get(mountPoint) ?? 0) + 1)
  }
  return references
}
