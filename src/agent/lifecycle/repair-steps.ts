import { AgentError, messageOf } from '../../base/errors.ts'
import type { Identity } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Repair } from '../../gen/state/lifecycle.ts'
import type { Os } from '../../os/os.ts'
import type { EventLog } from '../../state/event-log.ts'
import { type HostClock, isBehind } from './host-clock.ts'
import type { LifecycleRecord } from './lifecycle-record.ts'
import type { RepairStep, RepairUnderWay, StepOutcome } from './repairs.ts'

/** Connections of callers. */
export interface UntrustedConnections {
  /**
   * Closes the TCP connections that are older than the one with this name, or without it, than this moment. Those of vsock
   * are left to the kernel, which resets them with their device. Returns how many there were.
   */
  dropOlder(than: string, beforeNs: bigint): number
}

/** What Lifecycle/Quiesce has frozen. Both do nothing where nothing is frozen. */
export interface FrozenPod {
  /** The guest was restored: thaws the file systems, begins the bound anew, and thaws the containers unless they are held. */
  resumed(options: { readonly holdsContainers: boolean }): Promise<void>
  /** Thaws the containers that are held. */
  ready(): Promise<void>
}

/** Streams over ports that have lost their connections. */
export interface LostStreams {
  /** Dials again, also those whose connections nothing has ended, unless a caller has detached them. */
  dialAgain(): Promise<void>
}

export interface RepairParts {
  readonly os: Pick<Os, 'clock' | 'system'>
  readonly record: LifecycleRecord
  readonly connections: () => UntrustedConnections | undefined
  readonly frozen: FrozenPod
  readonly streams: LostStreams
  readonly hostClock: HostClock
  /** Reads the host's clock again, meanwhile. */
  readonly clockWasSet: () => void
  readonly events: Pick<EventLog, 'add'>
  /** Makes the guest another one. Throws the first failure. */
  readonly takeIdentity: (identity: Identity, signal: AbortSignal) => Promise<void>
}

/** The steps of a repair, in their order (docs/resume.md). */
export function repairSteps(parts: RepairParts): readonly RepairStep[] {
  const step = (
    name: string,
    boundMs: number,
    run: (parts: RepairParts, repair: RepairUnderWay, signal: AbortSignal) => Promise<StepOutcome>,
  ): RepairStep => ({ name, boundMs, run: (repair, signal) => run(parts, repair, signal) })
  return [
    step('thaw', 10_000, thaw),
    step('connections', 2_000, dropConnections),
    step('kernel_random', 5_000, renewKernelRandom),
    step('own_random', 1_000, renewOwnRandom),
    step('clock', 2_000, setClock),
    step('identity', 60_000, takeIdentity),
    step('ready', 10_000, becomeReady),
  ]
}

/** A device that goes says nothing of a restore: the guest may be about to be saved, and then has to stay frozen. */
async function thaw({ frozen }: RepairParts, { trigger, request }: RepairUnderWay): Promise<StepOutcome> {
  if (trigger === 'device') return { state: 'skipped', reason: 'only a device has gone' }
  await frozen.resumed({ holdsContainers: holdsContainers(trigger, request.identity) })
  return { state: 'done' }
}

/** The kernel's word comes before the call that may tell another identity. */
function holdsContainers(trigger: RepairUnderWay['trigger'], identity: Identity | undefined): boolean {
  return trigger === 'kernel' || (identity !== undefined && identity.holdContainers !== false)
}

async function dropConnections(
  { connections, streams, record }: RepairParts,
  repair: RepairUnderWay,
): Promise<StepOutcome> {
  const { trigger } = repair
  if (trigger === 'device') return { state: 'skipped', reason: 'the kernel has reset them' }
  // The kernel's line may be read after the call, whose connection is new all the same.
  const { peer, askedNs } = (trigger === 'kernel' ? callOfSameRestore(record, repair) : undefined) ?? repair
  const count = connections()?.dropOlder(peer, askedNs) ?? 0
  // The kernel's word comes before a new device does.
  if (trigger === 'call') await streams.dialAgain()
  return count === 0 ? { state: 'done' } : { state: 'done', reason: `${count} closed` }
}

/** How far apart a call and the kernel's own line may be, in which it says that it has reseeded itself. */
const SAME_RESTORE_NS = 10_000_000_000n

function callOfSameRestore({ fields }: LifecycleRecord, { askedNs }: RepairUnderWay): Repair | undefined {
  const isNear = (ns: bigint) => askedNs - ns <= SAME_RESTORE_NS && ns - askedNs <= SAME_RESTORE_NS
  return fields.repairs.findLast((each) => each.told?.trigger === 'call' && isNear(each.askedNs))
}

const SEED_BYTES = 64

async function renewKernelRandom({ os, record }: RepairParts, repair: RepairUnderWay): Promise<StepOutcome> {
  const { system } = os
  const { trigger, request, told, askedNs } = repair
  try {
    if (request.seed.length > 0) {
      // Clones that were given equal seeds differ in their generation.
      await system.addEntropy(Buffer.concat([request.seed, Buffer.from(request.generation)]))
      return renewed(told, "the host's seed")
    }
    if (trigger === 'kernel' || isAfterKernel(record, repair)) return renewed(told, 'vmgenid')
    const signal = AbortSignal.timeout(HARDWARE_MS)
    await system.addEntropy(await system.hardwareRandom(SEED_BYTES, signal))
    return renewed(told, '/dev/hwrng')
  } catch (error) {
    if (trigger === 'device') return { state: 'skipped', reason: 'no sign of a restore' }
    if (await kernelFollows(record, { askedNs, clock: os.clock })) return renewed(told, 'vmgenid')
    told.randomness = 'shared'
    throw new AgentError('INTERNAL', `no random bytes that clones do not have: ${messageOf(error)}`)
  }
}

/** The host gives random bytes at its own pace. */
const HARDWARE_MS = 2_000

function renewed(told: RepairUnderWay['told'], by: string): StepOutcome {
  told.randomness = 'renewed'
  return { state: 'done', reason: `by ${by}` }
}

/** Whether the kernel told of the same restore before. No other call has told of one since. */
function isAfterKernel({ fields }: LifecycleRecord, { number, askedNs }: RepairUnderWay): boolean {
  const before = fields.repairs.findLast(
    ({ told }) => told !== undefined && told.number < number && told.trigger !== 'device',
  )
  return before?.told?.trigger === 'kernel' && askedNs - before.askedNs <= SAME_RESTORE_NS
}

const KERNEL_MS = 2_000
const LOOK_MS = 20

/** Whether the kernel's own line comes a moment after the call. The repair that it begins waits for this one. */
async function kernelFollows(
  record: LifecycleRecord,
  { askedNs, clock }: Pick<RepairUnderWay, 'askedNs'> & Pick<Os, 'clock'>,
): Promise<boolean> {
  const follows = () =>
    record.fields.repairs.some(({ told, ...each }) => told?.trigger === 'kernel' && each.askedNs >= askedNs)
  const end = clock.monotonicMs() + KERNEL_MS
  while (!follows() && clock.monotonicMs() < end) await clock.sleep(LOOK_MS)
  return follows()
}

async function renewOwnRandom({ os }: RepairParts, { told }: RepairUnderWay): Promise<StepOutcome> {
  try {
    os.system.reseedGenerators()
    return { state: 'done' }
  } catch (error) {
    told.randomness = 'shared'
    throw error
  }
}

async function setClock(
  { clockWasSet, hostClock, os, events }: RepairParts,
  { request, told, askedNs }: RepairUnderWay,
): Promise<StepOutcome> {
  const sinceNs = os.clock.boottimeNs() - askedNs
  const pause = await hostClock.look(request.timeNs === 0n ? undefined : request.timeNs + sinceNs)
  if (pause === undefined) throw new AgentError('FAILED_PRECONDITION', "nothing tells the host's time")
  const { source, stoodStillMs } = pause
  if (stoodStillMs !== undefined) told.stoodStillMs = BigInt(Math.round(stoodStillMs))
  const by = source === 'call' ? 'the time of the call' : `/dev/${source}0`
  if (!isBehind(pause)) {
    told.clockStepMs = 0n
    return { state: 'skipped', reason: `is right by ${by}` }
  }
  const stepMs = BigInt(Math.round(pause.behindMs))
  hostClock.set(pause)
  clockWasSet()
  told.clockStepMs = stepMs
  events.add({ clockSet: { stepMs } })
  return { state: 'done', reason: `moved by ${stepMs} ms, by ${by}` }
}

async function takeIdentity(
  { takeIdentity: take }: RepairParts,
  { request }: RepairUnderWay,
  signal: AbortSignal,
): Promise<StepOutcome> {
  if (request.identity === undefined) return { state: 'skipped', reason: 'none was given' }
  await take(request.identity, signal)
  return { state: 'done' }
}

/** A clone that has not become another guest must not run: its containers would use names and addresses of the first. */
async function becomeReady(
  { frozen }: RepairParts,
  { trigger, failed }: RepairUnderWay,
): Promise<StepOutcome> {
  if (failed.includes('identity')) throw new AgentError('FAILED_PRECONDITION', 'step identity has failed')
  if (trigger === 'call') await frozen.ready()
  return { state: 'done' }
}
