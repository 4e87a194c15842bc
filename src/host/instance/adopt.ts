import { neverAborted } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { State } from '../../gen/microvm/instance/v1/instance.ts'
import { settlePlugs } from './devices/plug.ts'
import { settleReplacements } from './devices/replace-backend.ts'
import { readClock } from './documents/guest-clock.ts'
import { answer } from './holder/ask-holder.ts'
import type { MachineInstance } from './instance.ts'
import { isFull } from './leases/check-lease.ts'
import { LEASE_ENDED } from './leases/lease-keeper.ts'
import { terminated } from './leases/terminate.ts'
import { describeEnd, type Machine, QEMU } from './machine/machine.ts'
import { connectMachine, isKept, makeSteps, STEPS, type StepContext } from './machine/steps.ts'
import type { Moves } from './moves.ts'
import { isOnItsWay, isUndecided, LOST, refuseUndecided } from './moving/undecided.ts'
import { settleResets } from './reset.ts'
import { settleLayers } from './snapshots/settle.ts'
import { settleStreams } from './streams.ts'

/** Takes instances in again, some at a time. Resolves when all are, or after a while; those that are not yet are in `adoptions`. */
export async function adoptAll(
  instances: readonly MachineInstance[],
  adoptions: Map<MachineInstance, Promise<void>>,
  { clock, limits, moves }: Pick<StepContext, 'clock' | 'limits'> & { readonly moves?: Moves | undefined },
): Promise<void> {
  const lanes: Promise<void>[] = []
  for (const [index, instance] of instances.entries()) {
    const lane = index % limits.adopted
    const before = lanes[lane]
    const adoption = instance.change(async () => {
      await before
      await adopt(instance, moves)
    }, neverAborted)
    // The others do not wait for the answers of controllers and of other hosts.
    if (!isOnItsWay(instance)) lanes[lane] = adoption
    adoptions.set(instance, adoption)
    void adoption.then(() => adoptions.delete(instance))
  }
  const over = new AbortController()
  await Promise.race([Promise.all(lanes), clock.sleep(limits.adoptionMs, over.signal).catch(() => {})])
  over.abort()
}

/**
 * Takes an instance in again after a start of the daemon: finds its processes, corrects the record by what they say, and
 * finishes the change that was under way. Never throws: an instance that cannot be taken in again is stopped, with the
 * reason. A machine that another host may run stays as it is. To be called in a change.
 */
async function adopt(instance: MachineInstance, moves?: Pick<Moves, 'settle'>): Promise<void> {
  const { context, record } = instance
  try {
    await noteArrival(instance)
    const isLive = await findMachine(instance)
    if (record.desired === State.REMOVING) return await instance.finishRemoval()
    if (!isLive) {
      if (await moves?.settle(instance)) return
      return await finishWithoutMachine(instance)
    }
    if (record.terminated || record.desired === State.STOPPED || record.current === State.STOPPING)
      return await instance.tearDown(record.reason)
    await takeIn(instance, moves)
  } catch (error) {
    context.log.warn('instance not adopted', { instance: instance.key, error: messageOf(error) })
    const isDecided = instance.ending.aborted || !isUndecided(instance.recorded.steps)
    if (instance.isLetGo || !isDecided) return
    const hasEnded = await hasLeaseEnded(instance).catch(() => false)
    const stopped = hasEnded
      ? terminated(instance, LEASE_ENDED)
      : instance.tearDown(`not taken in again: ${messageOf(error)}`)
    await stopped.catch((failure) => context.log.error('instance not stopped', { error: messageOf(failure) }))
  }
}

/** Where the registry was made anew, the machine may still have been on its way here. */
async function noteArrival({ record, recorded }: MachineInstance): Promise<void> {
  const isKnown = recorded.steps.some(({ step }) => step === 'incoming')
  const isUnderWay = record.current !== State.AWAITING && record.current !== State.STOPPED
  if (record.target === undefined || !isUnderWay || isKnown) return
  const add = [recorded.step('incoming', LOST.incoming)]
  await recorded.commit({ add, kind: 'adopted', text: 'the machine was on its way here' })
}

/** Where the registry was made anew, QEMU alone tells that the memory of the machine may have gone to another host. */
async function noteMove({ ending, record, recorded }: MachineInstance, { qmp }: Machine): Promise<void> {
  if (record.instanceId === '' || recorded.steps.some(({ step }) => SENDING.includes(step))) return
  const { status } = await qmp.execute('query-status', {}, ending)
  if (status !== 'postmigrate' && status !== 'finish-migrate') return
  const add = [recorded.step('move', LOST.move(record.desired === State.RUNNING ? 'running' : 'paused'))]
  await recorded.commit({ add, kind: 'adopted', text: 'the machine may have been handed over' })
}

const SENDING: readonly string[] = ['suspend', 'memory', 'move', 'incoming']

/** Finds the holder, and QEMU below it. Writes the steps down where the registry was made anew. */
async function findMachine(instance: MachineInstance): Promise<boolean> {
  const { context, recorded } = instance
  const mayRun = recorded.steps.some((step) => !isKept(step)) || recorded.record.current !== State.STOPPED
  if (!mayRun) return false
  context.holder = await answer(context, context.holders.find(context.folder))
  if (context.holder === undefined) return false
  const children = await answer(context, context.holder.children())
  const runs = children.some(({ name, exit }) => name === QEMU.child && exit === undefined)
  if (runs && !recorded.steps.some(({ step }) => step === 'qemu')) {
    const planned = await instance.planned()
    const add = planned.map(({ step, words }) => recorded.step(step, words))
    await recorded.commit({ add, kind: 'adopted', text: 'the steps of the machine were written down anew' })
  }
  return runs
}

async function finishWithoutMachine(instance: MachineInstance): Promise<void> {
  const { record, context, recorded } = instance
  const { current, desired } = record
  await settleLayers(instance)
  if (current === State.STOPPED && recorded.steps.every(isKept)) return
  const holderDied = context.holder === undefined && (current === State.PAUSED || current === State.RUNNING)
  const reason = holderDied ? 'the holder died while no daemon ran' : await endOf(instance)
  const isUnfinished = current === State.CREATING
  if (await hasLeaseEnded(instance)) return await terminated(instance, LEASE_ENDED)
  const isAsked = desired === State.STOPPED
  await instance.tearDown(
    isUnfinished || isAsked ? record.reason : reason,
    holderDied ? 'holder died' : 'adopted',
  )
  if (isUnfinished && !isAsked) await instance.start({ isNew: false, desired })
}

async function hasLeaseEnded({ context, record }: MachineInstance): Promise<boolean> {
  const { holder } = context
  if (holder === undefined || !isFull(record.properties?.lease)) return false
  return (await answer(context, holder.heldLease()))?.hasEnded === true
}

/** How QEMU has ended, by its holder. */
async function endOf({ context }: MachineInstance): Promise<string> {
  const children = context.holder === undefined ? [] : await answer(context, context.holder.children())
  const exit = children.find(({ name }) => name === QEMU.child)?.exit
  return exit === undefined ? 'QEMU has ended' : await describeEnd(context.folder, exit)
}

async function takeIn(instance: MachineInstance, moves?: Pick<Moves, 'settle'>): Promise<void> {
  const { context, record, recorded } = instance
  const { holder } = context
  if (holder === undefined) return
  const machine = await connectMachine(context, holder)
  const warn = (text: string) => (error: unknown) =>
    context.log.warn(text, { instance: instance.key, error: messageOf(error) })
  context.machine = machine
  instance.watch(machine)
  await noteMove(instance, machine)
  if (await moves?.settle(instance)) return
  refuseUndecided(instance)
  await settleLayers(instance)
  await settlePlugs(instance)
  await settleReplacements(instance)
  await restoreFilters(instance)
  for (const { step, words } of recorded.steps) {
    // QEMU may have begun just before the daemon died.
    if (step === 'cpus' || step === 'throttle' || step === 'balloon')
      await STEPS[step].make(context, { step, words }, record).catch((error) => {
        if (record.current === State.CREATING) throw error
        warn(`${step} not set`)(error)
      })
    // Nor may a screen have its password; one that runs keeps what it began with.
    if (step === 'password' && record.current === State.CREATING)
      await STEPS.password.make(context, { step, words }, record)
  }
  await connectTaps(instance)
  await settleStreams(instance).catch(warn('streams not listened on'))
  await readClock(instance).catch(warn('clock not read'))
  await settleResets(instance)
  await correct(instance, machine)
}

/** QEMU may have made its taps just before the daemon died. */
async function connectTaps(instance: MachineInstance): Promise<void> {
  const { context, record, recorded } = instance
  const taps = recorded.steps.filter(({ step }) => step === 'tap')
  if (taps.length === 0) return
  const warn = (error: unknown) =>
    context.log.warn('tap not connected', { instance: instance.key, error: messageOf(error) })
  const planned = await instance.planned().catch(warn)
  for (const { words } of taps) {
    const { mac = '' } = planned?.find(({ step, words: [key] }) => step === 'tap' && key === words[0]) ?? {}
    await STEPS.tap.make(context, { step: 'tap', words, mac }, record).catch(warn)
  }
}

/** The daemon may have died before it made them, and others may have taken them away since. */
async function restoreFilters(instance: MachineInstance): Promise<void> {
  const { context, record, recorded } = instance
  if (!recorded.steps.some(({ step }) => step === 'filter')) return
  const planned = await instance.planned()
  const taps = planned.filter(
    ({ step, words: [, name = ''] }) => step === 'tap' && context.links.exists(name),
  )
  const filters = planned.filter(
    ({ step, words: [key] }) => step === 'filter' && taps.some(({ words }) => words[0] === key),
  )
  await makeSteps(context, filters, record)
}

/** What QEMU says is so; a change that was under way is finished. */
async function correct(instance: MachineInstance, { qmp }: Machine): Promise<void> {
  const { recorded, context } = instance
  const { desired, current } = instance.record
  const { running, status } = await qmp.execute('query-status', {}, instance.ending)
  const found = running ? State.RUNNING : State.PAUSED
  const isUnderWay = desired !== current
  if (found !== current && !isUnderWay)
    context.log.warn('state corrected', { instance: instance.key, recorded: current, status })
  const set = { current: found, desired: isUnderWay ? desired : found }
  await recorded.commit({ set, kind: 'adopted', text: 'the daemon has taken the instance in again' })
  if (found !== set.desired) await (desired === State.RUNNING ? instance.run() : instance.pause())
}
