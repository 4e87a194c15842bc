import { deadlineExceeded, withTimeout } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Broker, EarlierRequests } from '../../os/supervisor/broker.ts'
import { EMPTY_RESPONSE } from '../../state/outcomes.ts'
import { type ContainerRecord, readContainerRecords } from '../container/container-record.ts'
import { chosen, RECOVERY, type SandboxAction } from '../container/recovery-table.ts'
import { keepsStorages, restoreContainer } from '../container/restore-container.ts'
import { isSentAgain, whenSettled } from '../process/restore-process.ts'
import { discardStored, isOfProcess } from '../stdio/stored-descriptors.ts'
import type { SandboxContext } from './context.ts'
import { cleanUpAfterCrash } from './crash-recovery.ts'
import { restoredSandbox } from './create-sandbox.ts'
import { Phase, readSandboxRecord, SandboxRecord } from './sandbox-record.ts'

/** Where the requests of the time before are known; undefined without a broker, whose clients are gone then. */
type RequestSource = Pick<Broker, 'earlierRequests' | 'confirm'> | undefined

/**
 * Goes on with the sandbox and the containers that an agent before this one has left. A container that cannot be gone on
 * with is ended and removed. When the rest cannot be restored, records that the sandbox is lost, logs why at level CRIT, and
 * throws INTERNAL: this agent, which has restored a part, must end, and the next one removes everything. To be called once,
 * before requests are served.
 */
export async function restoreSandbox(context: SandboxContext, source: RequestSource): Promise<void> {
  const { log, outcomes, config, state, sandboxState } = context
  if (!config.restarted) return
  const requests = source?.earlierRequests ?? NO_REQUESTS
  try {
    const record = readSandboxRecord(state)
    const action = record && (await chosen(RECOVERY.sandbox, record.fields.phase, () => false))
    if (action === 'remove all') {
      await cleanUpAfterCrash(context)
      sandboxState.restore('lost')
    } else {
      log.warn('the agent was restarted, and goes on', await restoreAll(context, record, action, requests))
    }
    outcomes.keepOnly((number) => isSentAgain(requests, number))
    context.hostConnections.keepOnly((call) => isSentAgain(requests, call))
  } catch (error) {
    log.critical('the saved state cannot be restored', { error: messageOf(error) })
    new SandboxRecord(state).save({ phase: Phase.LOST })
    throw new AgentError('INTERNAL', `the saved state cannot be restored: ${messageOf(error)}`)
  }
  for (const number of requests.states.keys()) {
    whenSettled(requests, number, () => source?.confirm(number))
  }
}

const NO_REQUESTS: EarlierRequests = { states: new Map(), settled: () => new Promise(() => {}) }

async function restoreAll(
  context: SandboxContext,
  sandboxRecord: SandboxRecord | undefined,
  action: SandboxAction | undefined,
  requests: EarlierRequests,
): Promise<{ readonly sandbox: string; readonly containers: number }> {
  const { os, state, storage, containers, keys, sandboxState } = context
  const records = readContainerRecords(state)
  context.oom.queue.restore((number, act) => whenSettled(requests, number, act))
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
    stopWhenAnswered(context, requests, request)
    return { sandbox: '', containers: 0 }
  }
  sandboxState.restore(isUndone ? 'none' : (sandbox ?? 'none'))
  const dependencies = { ...context, requests }
  if (action === 'go on' && isSentAgain(requests, request)) context.outcomes.answer(request, EMPTY_RESPONSE)
  const active = sandboxState.active()
  await context.fileCopies.restore()
  // A container whose pid namespace others share comes before those.
  for (const record of records.toSorted(makersFirst)) await restoreContainer(dependencies, record, active)
  // Those of hooks, and of processes that were about to be made.
  await discardStored(os.descriptors, os.streams, isOfProcess)
  await context.runtime.discardAllRuns()
  if (isUndone) {
    await sandbox?.onDestroy.run()
    sandboxRecord?.remove()
  }
  return { sandbox: id, containers: containers.list().length }
}

/** How long the agent goes on after DestroySandbox for the requests that are sent again. */
const ANSWER_MS = 1000

/**
 * Stops as the agent before was about to, once DestroySandbox, whose number is `request`, and the other requests that are
 * sent again have their answers: a stop ends the connections. The broker does not tell of all answers.
 */
function stopWhenAnswered(context: SandboxContext, requests: EarlierRequests, request: bigint): void {
  const { os, oom, outcomes, onDestroyed } = context
  if (isSentAgain(requests, request)) outcomes.answer(request, EMPTY_RESPONSE)
  oom.queue.close()
  const open = [...requests.states.keys()].filter((number) => isSentAgain(requests, number))
  const answered = Promise.all(open.map((number) => requests.settled(number)))
  void withTimeout(os.clock, ANSWER_MS, answered, deadlineExceeded).then(onDestroyed, onDestroyed)
}

function makersFirst(one: ContainerRecord, other: ContainerRecord): number {
  return Number(other.fields.pidNamespace !== '') - Number(one.fields.pidNamespace !== '')
}

/** How often each mount point is referred to. */
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
