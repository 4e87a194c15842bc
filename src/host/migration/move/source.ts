import { randomUUID } from 'node:crypto'
import { isAbsolute } from 'node:path'
import { neverAborted } from '../../../base/abort.ts'
import { messageOf } from '../../../base/errors.ts'
import { type MigrateInstanceRequest, type Moved, State } from '../../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { HypervisorID } from '../../../gen/vm.ts'
import { hasAgentWay } from '../../instance/connect-agent.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import { settleReplugs } from '../../instance/devices/replug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { withoutVolumes } from '../../instance/leases/check-lease.ts'
import type { Migrating } from '../../instance/moves.ts'
import { movedRows } from '../../instance/moving/moved-away.ts'
import { hypervisorOf, instanceIdOf } from '../../instance/moving/only-vm.ts'
import { HANDED } from '../../instance/moving/undecided.ts'
import { writeRecordFile } from '../../instance/record/instance-record.ts'
import { Moving } from '../../instance/streams.ts'
import { undoBulk } from '../bulk/undo.ts'
import type { AtStep } from '../faults.ts'
import { endCallers } from '../guest.ts'
import { checkSavable, goOn } from '../machine-state.ts'
import type { HostFacts } from '../manifest.ts'
import { checkSuspend } from '../saving/check-suspend.ts'
import { newSaving, type Saving } from '../saving/saving.ts'
import { attachAgain, SAVING, type Step, save, stepOf, undoSaving } from '../saving/steps.ts'
import { becomeAuthoritative } from './authority.ts'
import { checkMove } from './check-move.ts'
import { setAside } from './disks-along.ts'
import { type MoveHost, refused } from './move-host.ts'
import { type Outbound, OutboundMove, type Speed } from './outbound.ts'
import { unmarkDisks } from './shared-disks.ts'

export interface SourceParts {
  readonly host: MoveHost
  readonly facts: HostFacts
  readonly speed: Speed
  readonly atStep: AtStep
}

/** Which words of the step have how far a move is, the run id before it was taken back, and {@link Gone}. */
const [PHASE, RUN_BEFORE, GONE] = [6, 7, 8]
const MOVED = 'moved'

/** What takes back the bulk of a move, also of another daemon. It lets the guest go on. */
const BULK = {
  name: 'memory',
  make: async () => {},
  undo: async ({ instance, wasRunning }: Pick<Saving, 'instance' | 'wasRunning'>) => {
    const { context } = instance
    const qemu = { ...context, qmp: instance.machine().qmp, signal: instance.ending }
    await undoBulk(qemu, { source: { wasRunning } })
  },
} satisfies Step

/** Moves the machine, and ends the instance. When it fails before the machine is handed over, the machine goes on here. */
export async function move(
  instance: MachineInstance,
  request: MigrateInstanceRequest,
  { host, facts: hostFacts, speed, atStep }: SourceParts,
  how: Migrating,
): Promise<Moved> {
  const { record, context } = instance
  const { qmp } = instance.machine()
  const wasRunning = record.current === State.RUNNING
  const hasAgent = !request.withoutAgent && hasAgentWay(instance)
  // What an earlier one could not let go on.
  if (!wasRunning) await goOn(qmp, { wasRunning, signal: instance.ending })
  await settleReplugs(instance)
  checkMove(instance, host)
  const vsock = await checkSuspend(instance, { wasRunning, hasAgent })
  if (vsock === undefined) await checkSavable(qmp, instance.ending)
  const us = await identify(instance, host)
  const named = { name: instance.key, quiesce: request.quiesce }
  const facts = { folder: '', hasAgent, host: hostFacts, id: randomUUID(), request: named, vsock, wasRunning }
  const saving = newSaving(instance, { ...facts, step: 'move' })
  const outcome = Promise.withResolvers<Moved | undefined>()
  const outbound = new OutboundMove({ host, saving, us, how, toHost: request.toHost, speed })
  const caller = { inStep: how.inStep }
  const names = {
    text: 'the machine is on its way to another host',
    failed: 'the machine was not moved',
    doing: 'moving',
  }
  try {
    await save(saving, stepsOf(saving, outbound, { outcome: outcome.promise, how }), {
      ...{ caller, ...names },
      atStep: (_, step) => atStep('move', step),
    })
    return await handOver(saving, outbound, { host, us, atStep, how, told: outcome.resolve })
  } catch (error) {
    outcome.resolve(undefined)
    throw error
  } finally {
    await outbound.close()
    context.log.debug('move ended', { instance: instance.key })
  }
}

function stepsOf(
  saving: Saving,
  outbound: Outbound,
  { how, outcome }: { readonly outcome: Promise<Moved | undefined>; readonly how: Migrating },
): readonly Step[] {
  const { instance } = saving
  const steps: readonly Step[] = [
    { name: 'target', make: () => outbound.findTarget() },
    { name: 'negotiate', make: () => outbound.negotiate() },
    { name: 'handover', make: () => outbound.begin() },
    { name: 'disks', make: () => outbound.copyDisks(), undo: () => outbound.endBulk() },
    SAVING.quiesce,
    {
      ...SAVING.detach,
      make: async (moved) => {
        instance.beginBoot(new Moving(instance.key, outcome))
        await outbound.detach(moved)
      },
    },
    SAVING.unplug,
    { ...BULK, make: () => outbound.sendMemory(), undo: () => outbound.endBulk() },
    { name: 'state', make: () => outbound.sendState() },
  ]
  const told = steps.map((step) => ({
    ...step,
    make: async (moved: Saving) => {
      how.tell({ step: step.name })
      how.signal.throwIfAborted()
      await step.make(moved)
      how.signal.throwIfAborted()
    },
  }))
  return [...told, { name: HANDED, make: () => noteHanded(saving, outbound) }]
}

/** From here on the controller decides who runs the machine. */
async function noteHanded(saving: Saving, { along, target }: Outbound): Promise<void> {
  const { instance } = saving
  const step = presentStep(instance) ?? stepOf(saving)
  const add = [withWords(step, HANDED, '', target.host, target.endpoint, ...along)]
  await instance.recorded.commit({ add, kind: 'state', text: 'the machine is handed over' })
  // A registry that is made anew has nothing else of who this run is.
  writeRecordFile(instance.context.folder, instance.record)
}

interface Handing {
  readonly host: MoveHost
  readonly us: HypervisorID
  readonly atStep: AtStep
  readonly how: Migrating
  readonly told: (moved: Moved | undefined) => void
}

/** The step is {@link HANDED}. */
async function handOver(
  saving: Saving,
  outbound: Outbound,
  { host, us, atStep, how, told }: Handing,
): Promise<Moved> {
  const { instance } = saving
  let failure: unknown
  try {
    how.tell({ step: 'continue' })
    await atStep('move', 'continue')
    await outbound.endHandover()
    how.tell({ step: 'switchover' })
    await atStep('move', 'switchover')
    await outbound.runs()
  } catch (error) {
    failure = error
    await outbound.close()
    instance.context.log.warn('target not heard of', { instance: instance.key, error: messageOf(error) })
    how.inStep('asking the controller who runs the machine')
    const isOurs = await takeBack(instance, { host, us })
    if (isOurs) {
      told(undefined)
      await goOnHere(saving, outbound, messageOf(error))
      throw refused(`the machine was not moved: ${messageOf(error)}`)
    }
  }
  await atStep('move', 'end')
  const moved = await end(instance, told)
  const operation = failure === undefined ? await outbound.done() : undefined
  return { ...moved, operation }
}

/** Ends an instance whose machine runs elsewhere. Its callers are told where before the guest is ready there. */
async function end(instance: MachineInstance, told: (moved: Moved) => void = () => {}): Promise<Moved> {
  const { recorded, record } = instance
  const { key = '', tenant = '' } = record.properties ?? {}
  const step = presentStep(instance)
  const { host, endpoint } = goneOf(step)
  const moved: Moved = { host, endpoint, timeMs: BigInt(Date.now()), operation: undefined }
  await recorded.commit({
    ...(step && { add: [withWords(step, MOVED, '', ...step.words.slice(GONE))] }),
    rows: await movedRows(recorded, { key, tenant, moved, cameFrom: record.cameFrom }),
    kind: 'state',
    text: `the machine runs on host ${moved.host}`,
  })
  told(moved)
  endCallers(instance, new Moving(instance.key, Promise.resolve(moved)))
  if (step !== undefined) await setDisksAside(instance, step)
  await instance
    .finishRemoval()
    .catch((error) => instance.context.log.error('moved machine not removed', { error: messageOf(error) }))
  return moved
}

/** The disks that have gone along are never opened again. */
async function setDisksAside({ context, record }: MachineInstance, step: StepRecord): Promise<void> {
  const failures = await setAside(goneOf(step).files, record.runId)
  for (const failure of failures) context.log.error('disk of a moved machine keeps its name', { failure })
}

/** Where a machine has gone, and the files of the disks that have gone along: words of the step, in this order. */
interface Gone {
  readonly host: string
  readonly endpoint: string
  readonly files: readonly string[]
}

function goneOf(step: StepRecord | undefined): Gone {
  const words = step?.words.slice(GONE) ?? []
  const [host = '', endpoint = '', ...files] = words
  // Up to version 1 of the handover the files alone were kept.
  return isAbsolute(host) ? { host: '', endpoint: '', files: words } : { host, endpoint, files }
}

/** Becomes another run, in place of the one that has handed its machine over or of an earlier try. Resolves with whether the machine is to go on here. */
async function takeBack(
  instance: MachineInstance,
  { host, us }: { readonly host: MoveHost; readonly us: HypervisorID },
  given = neverAborted,
): Promise<boolean> {
  const { context, recorded } = instance
  const runId = await host.nextRunId()
  const step = presentStep(instance)
  const words = [HANDED, `${us.runId}`, ...(step?.words.slice(GONE) ?? [])]
  const add = step === undefined ? [] : [withWords(step, ...words)]
  await recorded.commit({ set: { runId }, add, kind: 'state', text: 'the machine is being taken back' })
  const signal = AbortSignal.any([instance.ending, host.closing, given])
  const asked = { us: hypervisorOf(instance.record, host), them: us, host, log: context.log, signal }
  if (!(await becomeAuthoritative({ ...asked, givesUp: false }))) return false
  // That of the earlier run is not extended any more.
  await context.lease?.renewed(signal)
  return true
}

async function goOnHere(saving: Saving, outbound: Outbound, reason: string): Promise<void> {
  const { instance } = saving
  await outbound.endBulk()
  // The next daemon lets it go on.
  if (instance.isLetGo) throw refused(`the machine was not moved: ${reason}`)
  await attachAgain(saving)
  if (instance.isLetGo) throw refused(`the machine was not moved: ${reason}`)
  const drop = [instance.recorded.step('move', [''])]
  await instance.recorded.note({ drop, kind: 'state', text: `the machine was not moved: ${reason}` })
}

/** The present run of the instance, which a controller knows by it. */
export async function identify(instance: MachineInstance, host: MoveHost): Promise<HypervisorID> {
  if (instance.record.instanceId === '') {
    const set = { instanceId: instanceIdOf(instance.record, host.only), runId: await host.nextRunId() }
    await instance.recorded.commit({ set, kind: 'state', text: 'the instance has a name for controllers' })
  }
  return hypervisorOf(instance.record, host)
}

function presentStep({ recorded }: Pick<MachineInstance, 'recorded'>): StepRecord | undefined {
  return recorded.steps.find(({ step }) => step === 'move')
}

function withWords(step: StepRecord, ...words: readonly string[]): StepRecord {
  const before = Array.from({ length: PHASE }, (_, index) => step.words[index] ?? '')
  return { ...step, words: [...before, ...words] }
}

/** Decides what becomes of a move that another daemon has begun; asks the controller until `given` fires. Returns whether the instance is gone. */
export async function settleMove(
  instance: MachineInstance,
  step: StepRecord,
  host: MoveHost | undefined,
  given?: AbortSignal,
): Promise<boolean> {
  const { context, recorded } = instance
  const { [PHASE]: phase = '', [RUN_BEFORE]: before = '' } = step.words
  if (phase === MOVED) {
    await setDisksAside(instance, step)
    await instance.finishRemoval()
    return true
  }
  if (phase === HANDED) {
    if (host === undefined)
      throw refused('the machine was handed over, and this daemon is no host: want [host]')
    const us = hypervisorOf(instance.record, host)
    const them = before === '' ? us : { ...us, runId: BigInt(before) }
    if (!(await takeBack(instance, { host, us: them }, given))) {
      await end(instance)
      return true
    }
  }
  if (host !== undefined)
    await unmarkDisks(
      withoutVolumes(specificationOf(instance), instance.record),
      hypervisorOf(instance.record, host),
    ).catch((error) => context.log.warn('marks of disks not removed', { error: messageOf(error) }))
  const set = context.machine === undefined ? {} : await undoSaving(instance, step, [BULK])
  if (instance.isLetGo) throw refused('the daemon stops')
  const text = 'the machine was not moved: the daemon has ended meanwhile'
  await recorded.note({ set, drop: [step], kind: 'state', text })
  return false
}
