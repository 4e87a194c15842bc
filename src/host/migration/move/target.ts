import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { abortable, neverAborted, withTimeout } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { ResumedRequest } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import { MoveEnd, type MovePlan } from '../../../gen/microvm/instance/v1/handover.ts'
import { type Specification, State } from '../../../gen/microvm/instance/v1/instance.ts'
import { type StepRecord, StreamRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { HypervisorID, type MigrationSwitchoverRequest_VolumePlace as VolumePlace } from '../../../gen/vm.ts'
import { answer } from '../../instance/holder/ask-holder.ts'
import { writeRing } from '../../instance/holder/holder-files.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { OwnerCheck } from '../../instance/instances.ts'
import { withoutVolumes } from '../../instance/leases/check-lease.ts'
import { takeLease } from '../../instance/leases/take-lease.ts'
import { guestSocket } from '../../instance/machine/daemon-steps.ts'
import type { SavedStart } from '../../instance/machine/saved-start.ts'
import type { Arrival } from '../../instance/moves.ts'
import { forgetMoved } from '../../instance/moving/moved-away.ts'
import { hypervisorOf } from '../../instance/moving/only-vm.ts'
import { HANDED } from '../../instance/moving/undecided.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import { type Incoming, openIncoming } from '../bulk/incoming.ts'
import { undoBulk } from '../bulk/undo.ts'
import type { AtStep } from '../faults.ts'
import type { HostFacts } from '../manifest.ts'
import { commitResume, replacedRecord, settleRepair } from '../resume.ts'
import { recordIn } from '../state-file.ts'
import type { Agreement } from './agreements.ts'
import { knownVolumes } from './ask-target.ts'
import { awaitAuthority, becomeAuthoritative, isAuthoritative } from './authority.ts'
import {
  checkArrived,
  checkPlan,
  checkPlanFiles,
  checkQemu,
  recordOf,
  SOURCE,
  stillThere,
} from './check-arrival.ts'
import { disksAlong, flattened } from './disks-along.ts'
import type { HandoverReader, ReceivedRing, Rest } from './frames.ts'
import { letRun, letRunAgain } from './let-run.ts'
import { type MoveHost, reachedAt, refused } from './move-host.ts'
import { checkShared } from './shared-disks.ts'

export interface ArrivalParts {
  readonly host: MoveHost
  readonly facts: HostFacts
  readonly atStep: AtStep
  readonly checkOwner: OwnerCheck
}

type Send = Parameters<Arrival['take']>[1]

/** A handover that has begun. */
interface Given {
  readonly plan: MovePlan
  readonly reader: HandoverReader
  readonly agreement: Agreement
  /** Of the source. */
  readonly address: string
}

/**
 * Which words of the step tell how far the move is (once this host may have become authoritative, and once it has), and the end of
 * the handover. The keys of the disks that were copied follow.
 */
const [PHASE, END] = [2, 3]
const OWN = 'own'

/** Takes a machine in that is handed over, and lets it run. The instance is forgotten when that fails. To be called in a change. */
export async function arrive(
  instance: MachineInstance,
  given: Given,
  parts: ArrivalParts,
  { send, signal }: { readonly send: Send; readonly signal: AbortSignal },
): Promise<void> {
  const { recorded } = instance
  const { agreement, plan, reader } = given
  const { us: them = HypervisorID.create() } = plan
  try {
    const disks = disksAlong(plan, recorded.record.target, agreement.disks)
    const keys = disks.map(({ key }) => key)
    checkPlan(plan, parts.facts)
    const late = AbortSignal.timeout(parts.host.settings.readyMs)
    const inTime = AbortSignal.any([signal, instance.ending, late])
    const envelope = await abortable(reader.envelope(), inTime)
    const record = await recordOf(instance, plan, { envelope, along: keys })
    checkQemu(plan, record, parts.facts)
    const { document, properties, specification } = record
    // What is behind the machine of a document is looked up by the tenant's rules as it starts.
    if (document === undefined && specification !== undefined)
      await parts.checkOwner(properties?.tenant ?? '', specification)
    await abortable(checkPlanFiles(plan, record, disks), inTime)
    if (specification !== undefined) await checkShared(withoutVolumes(specification, record), them, keys)
    const arrival = new IncomingMachine(instance, {
      ...{ ...parts, ...given },
      ...{ specification, disks, them, send, signal },
    })
    const saved = arrival.start()
    await recorded.commit({
      set: { ...record, awaiting: recorded.record.awaiting, current: State.CREATING },
      // Without it the next daemon would start the machine anew, which runs at its source.
      add: [recorded.step(saved.step, saved.words)],
      kind: 'state',
      text: `a machine of ${them.podName} is on its way here`,
    })
    await parts.atStep('arrival', 'start')
    await instance.start({ isNew: false, desired: State.PAUSED, saved })
  } catch (error) {
    await leave(instance, parts.host, messageOf(error))
    throw error
  }
  await finish(instance, parts, send)
}

/** Forgets an instance whose machine has not come; one that this host is to run, or may have to, stays, stopped. */
async function leave(instance: MachineInstance, host: MoveHost, reason: string): Promise<void> {
  const { context, recorded } = instance
  // The next daemon decides.
  if (instance.isLetGo) return
  const step = incomingStep(instance)
  const phase = step?.words[PHASE]
  const isOwn =
    phase === HANDED
      ? await isAuthoritative({ us: hypervisorOf(instance.record, host), host }).catch(() => undefined)
      : phase === OWN
  // A later start of the instance asks again.
  if (isOwn === undefined) return
  const gone = isOwn
    ? recorded.note({ set: { ...ARRIVED, reason }, drop: step ? [step] : [], kind: 'state', text: reason })
    : instance.finishRemoval()
  await gone.catch((error) => context.log.warn('target of a move not removed', { error: messageOf(error) }))
}

const ARRIVED = { awaiting: undefined, target: undefined }

interface IncomingParts extends ArrivalParts, Given {
  /** What QEMU was started with. */
  readonly specification: Specification | undefined
  /** Those that go along. */
  readonly disks: readonly BulkDisk[]
  readonly them: HypervisorID
  readonly send: Send
  readonly signal: AbortSignal
}

class IncomingMachine {
  readonly #instance: MachineInstance
  readonly #parts: IncomingParts

  constructor(instance: MachineInstance, parts: IncomingParts) {
    this.#instance = instance
    this.#parts = parts
  }

  start(): SavedStart {
    const source = Buffer.from(HypervisorID.encode(this.#parts.them).finish()).toString('base64')
    return {
      ...{ step: 'incoming', words: ['', source], steps: [], rows: [], keepsTapsDown: true },
      bring: async () => {},
      load: () => this.#load(),
    }
  }

  async #load(): Promise<void> {
    const { address, agreement, atStep, disks, host, reader, send, signal, them } = this.#parts
    const instance = this.#instance
    const { context } = instance
    const qemu = {
      ...context,
      qmp: instance.machine().qmp,
      signal: AbortSignal.any([instance.ending, signal]),
    }
    await atStep('arrival', 'listen')
    const [peer = ''] = them.podName.split('/')
    const tls = { identity: host.identity, peer }
    const listen = { host: host.address, tls, disks: agreement.port }
    // By another way, the source may have another address.
    const mayConnect = (from: string) => !host.isDirect || address === '' || from === address
    const incoming = await openIncoming(qemu, { disks, listen, mayConnect })
    try {
      send({ ready: { memoryEndpoint: reachedAt(host, portOf(incoming.memory)) } })
      await atStep('arrival', 'memory')
      const tooLong = () => new AgentError('DEADLINE_EXCEEDED', 'handover: not over in time')
      const whole = withTimeout(
        context.clock,
        host.settings.moveMs,
        reader.rest((ring) => bringRing(this.#instance, ring)),
        tooLong,
      )
      const rest = await abortable(whole, AbortSignal.any([qemu.signal, failed(incoming)]))
      await atStep('arrival', 'state')
      const late = () => new AgentError('DEADLINE_EXCEEDED', 'memory: not arrived in time')
      // An emulated guest may have changed all of it while it was sent (live-emulation.ts). The source ends a wire that carries nothing.
      const { bulk, runsMs } = host.settings
      await withTimeout(context.clock, runsMs + bulk.memoryMs, incoming.arrived, late)
      await incoming.endDisks()
      await this.#takeOver(rest)
    } catch (error) {
      await incoming.close().catch(() => {})
      throw error
    }
  }

  /** All is here: becomes authoritative, and takes what the machine had on the source. */
  async #takeOver({ end, envelope }: Rest): Promise<void> {
    const { atStep, disks, host, them } = this.#parts
    const instance = this.#instance
    const { context, recorded } = instance
    recorded.timeline?.stoodSince({ stoppedMs: Number(end.stoppedMs), detachedMs: Number(end.detachedMs) })
    const copied = disks.map(({ key }) => key)
    const known = flattened(recordIn(envelope, SOURCE), copied, instance.record.target)
    const { leaving, leavingMs, nextPort } = known
    const arrived = replacedRecord(known, stillThere(instance, known))
    await checkArrived(arrived, end, this.#parts.specification)
    const step = incomingStep(instance)
    const [, source = ''] = step?.words ?? []
    const text = Buffer.from(MoveEnd.encode(end).finish()).toString('base64')
    const words = ['', source, HANDED, text, ...copied]
    await recorded.commit({
      set: { leaving, leavingMs, nextPort },
      add: [...(step ? [{ ...step, words }] : []), ...streamSteps(instance, end)],
      rows: streamRecords(instance, end),
      ...{ kind: 'state', text: 'the machine is here, and the controller is asked' },
    })
    await atStep('arrival', 'switchover')
    const us = hypervisorOf(instance.record, host)
    const signal = AbortSignal.any([instance.ending, host.closing])
    const volumes = () => volumesOf(instance, copied, host)
    // One that has ended takes no machine from its source, which has it whole.
    await instance.machine().qmp.execute('query-status', {}, signal)
    const question = { us, them, volumes, givesUp: true, host, log: context.log, signal }
    if (!(await becomeAuthoritative(question))) throw refused('another host runs the machine')
    await noteOwn(instance)
    await atStep('arrival', 'lease')
    await takeLease(instance, host)
    await letRun(instance, end, atStep)
  }
}

/** This host runs the machine from here on, whatever happens. */
async function noteOwn({ recorded }: MachineInstance): Promise<void> {
  const step = recorded.steps.find((each) => each.step === 'incoming')
  if (step === undefined) return
  const words = step.words.map((word, index) => (index === PHASE ? OWN : word))
  // The next daemon would ask and learn the same.
  await recorded.note({ add: [{ ...step, words }], kind: 'state', text: 'this host runs the machine' })
}

/** Fires when memory cannot arrive any more. */
function failed({ arrived }: Incoming): AbortSignal {
  const controller = new AbortController()
  arrived.catch((error) => controller.abort(error))
  return controller.signal
}

function incomingStep({ recorded }: MachineInstance): StepRecord | undefined {
  return recorded.steps.find(({ step }) => step === 'incoming')
}

function streamSteps({ context, recorded }: MachineInstance, { streams }: MoveEnd): readonly StepRecord[] {
  return streams.map(({ port }) => {
    const socket = `${guestSocket(context.folder)}_${port}`
    return recorded.step('stream', [`${port}`, socket, join(context.folder, 'streams', `${port}.ring`)])
  })
}

function streamRecords({ key }: MachineInstance, { streams }: MoveEnd) {
  return streams.map(({ live: _, ...stream }) => ({
    ...({ table: 'streams', key: `${key}/${stream.port}` } as const),
    payload: StreamRecord.encode({ ...stream, instance: key }).finish(),
  }))
}

/** The holder goes on with it. Its console has taken nothing yet. */
async function bringRing(
  { context }: MachineInstance,
  { bytes, closed, first, number }: ReceivedRing,
): Promise<void> {
  const { holder } = context
  await writeRing(context.folder, number, { bytes, first, isClosed: closed })
  if (number === 0 && holder !== undefined) await answer(context, holder.takeRing(number))
}

/** The machine runs: the source ends its own, and the guest is told. */
async function finish(instance: MachineInstance, { atStep }: ArrivalParts, send: Send): Promise<void> {
  const { recorded } = instance
  await atStep('arrival', 'commit')
  await closeChannels(instance)
  await commitArrival(instance)
  send({ runs: {} })
  await atStep('arrival', 'repair')
  await settleRepair(instance).catch((error) =>
    instance.context.log.warn('guest not repaired', { instance: instance.key, error: messageOf(error) }),
  )
  send({ done: { operation: recorded.timeline?.operation() } })
}

/** QEMU would keep its channels, and the next move would fail. The step must not be dropped before. */
async function closeChannels(instance: MachineInstance): Promise<void> {
  const { context } = instance
  const qemu = { ...context, qmp: instance.machine().qmp, signal: instance.ending }
  await undoBulk(qemu).catch((error) =>
    context.log.warn('channels of a move not closed', { error: messageOf(error) }),
  )
}

async function commitArrival(instance: MachineInstance): Promise<void> {
  const end = endOf(incomingStep(instance))
  const request = ResumedRequest.fromPartial({
    generation: `${end.id}/${randomBytes(8).toString('hex')}`,
    seed: randomBytes(64),
  })
  const current = end.running ? State.RUNNING : State.PAUSED
  const set = { ...ARRIVED, bootId: end.bootId }
  const rows = [forgetMoved(instance.key)]
  await commitResume(instance, end.hasAgent ? request : undefined, { current, set, rows })
}

function endOf(step: StepRecord | undefined): MoveEnd {
  return MoveEnd.decode(Buffer.from(step?.words[END] ?? '', 'base64'))
}

/** Decides what becomes of a machine that was on its way here when another daemon ended. Returns whether the instance is gone. */
export async function settleArrival(
  instance: MachineInstance,
  step: StepRecord,
  host: MoveHost | undefined,
  given = neverAborted,
): Promise<boolean> {
  const { context, recorded } = instance
  const { [PHASE]: phase = '' } = step.words
  if (phase !== HANDED && phase !== OWN) {
    await instance.finishRemoval()
    return true
  }
  if (phase === HANDED && !(await isOwnNow(instance, step, host, given))) {
    await instance.finishRemoval()
    return true
  }
  if (context.machine === undefined) {
    const text = 'the machine has ended as it came here'
    const current = recorded.record.current === State.STOPPED ? State.STOPPED : State.RUNNING
    await recorded.commit({ set: { ...ARRIVED, current }, drop: [step], kind: 'state', text })
    return false
  }
  await noteOwn(instance)
  const { running } = await context.machine.qmp.execute('query-status', {}, instance.ending)
  if (!running && host !== undefined)
    await takeLease(instance, host).catch(async (error) => {
      const reason = messageOf(error)
      await leave(instance, host, reason)
      // It could write to nothing.
      if (!instance.isLetGo) await instance.tearDown(reason)
      throw error
    })
  await letRunAgain(instance, endOf(step))
  await closeChannels(instance)
  await commitArrival(instance)
  return false
}

async function isOwnNow(
  instance: MachineInstance,
  { words }: StepRecord,
  host: MoveHost | undefined,
  given: AbortSignal,
): Promise<boolean> {
  if (host === undefined)
    throw refused('a machine is on its way here, and this daemon is no host: want [host]')
  const [, source = ''] = words
  const them = HypervisorID.decode(Buffer.from(source, 'base64'))
  const us = hypervisorOf(instance.record, host)
  const signal = AbortSignal.any([instance.ending, host.closing, given])
  const question = { us, host, log: instance.context.log, signal }
  // The source has the memory, unless this host has become authoritative while it had it, too.
  if (instance.context.machine === undefined) return await awaitAuthority(question)
  const volumes = () => volumesOf(instance, words.slice(END + 1), host)
  return await becomeAuthoritative({ ...question, them, volumes, givesUp: true })
}

/** The volumes of the machine as the controller knows them, with those that were copied here; none where none was copied. */
export async function volumesOf(
  instance: Pick<MachineInstance, 'record'>,
  keys: readonly string[],
  host: Pick<MoveHost, 'controller' | 'id' | 'only'>,
): Promise<readonly VolumePlace[]> {
  const files = instance.record.target?.replaceComponents ?? {}
  const copied = keys.map((key) => ({ key, host: host.id, path: files[key]?.file?.path ?? '', epoch: 0n }))
  if (copied.length === 0) return []
  const { namespace, vmName: name } = hypervisorOf(instance.record, host)
  const known = await knownVolumes(host.controller, { namespace, name })
  return [...known.filter(({ key }) => !keys.includes(key)), ...copied]
}

function portOf(endpoint: Incoming['memory']): number {
  if ('path' in endpoint) throw new AgentError('INTERNAL', `${endpoint.path}: no address for another host`)
  return endpoint.port
}
