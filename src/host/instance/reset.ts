import { State } from '../../gen/microvm/instance/v1/instance.ts'
import type { StepRecord } from '../../gen/microvm/instance/v1/records.ts'
import type { QmpEvent } from '../qemu/qmp/message.ts'
import { qemuId, specKey } from '../spec/spec-key.ts'
import { devicesOf, finishUnplug } from './devices/plug.ts'
import type { MachineInstance } from './instance.ts'
import type { Caller } from './instances.ts'

/** How many resets with an idempotency key a record names. Each is asked for again soon, or never. */
const KEPT_RESETS = 16

/** Resets the machine; a call with an idempotency key does so once, also when the daemon dies in it. To be called in a change. */
export async function reset(
  instance: MachineInstance,
  { callKey, isRepeated = false, begunMs }: Pick<Caller, 'callKey' | 'isRepeated' | 'begunMs'>,
): Promise<void> {
  const { recorded, record } = instance
  if (isRepeated && callKey !== undefined && record.resets.includes(callKey)) return
  // A machine that was made since then, as by a hypervisor after its death, has booted since then.
  if (begunMs !== undefined && begunMs < Number(record.createdMs)) return
  instance.machine()
  const step = recorded.step('reset', [
    record.bootId,
    record.current === State.RUNNING ? 'running' : 'paused',
  ])
  const resets = callKey === undefined ? record.resets : [...record.resets, callKey].slice(-KEPT_RESETS)
  await recorded.commit({ set: { resets }, add: [step], kind: 'state', text: 'the machine is to be reset' })
  try {
    await finishReset(instance, step)
  } catch (error) {
    if (recorded.record.bootId === step.words[0])
      await recorded.note({
        set: { resets: record.resets },
        kind: 'state',
        text: 'the machine was not reset',
      })
    throw error
  }
}

/** Finishes what an earlier daemon has begun. To be called in a change. */
export async function settleResets(instance: MachineInstance): Promise<void> {
  for (const step of instance.recorded.steps.filter((each) => each.step === 'reset'))
    await finishReset(instance, step)
}

/**
 * The CPUs stand still until the reset is in the record. So a reset that is repeated after the daemon's death finds a guest
 * that has not begun to boot, and the guest sees one reset.
 */
async function finishReset(instance: MachineInstance, step: StepRecord): Promise<void> {
  const { recorded } = instance
  const { qmp } = instance.machine()
  const [bootId, state] = step.words
  try {
    if (recorded.record.bootId === bootId) {
      await qmp.execute('stop', {}, instance.ending)
      await resetPaused(instance)
    }
    await finishUnplug(instance)
  } finally {
    if (state === 'running') await qmp.execute('cont', {}, instance.ending).catch(() => {})
    await recorded.note({ drop: [step], kind: 'state', text: 'the reset has ended' })
  }
}

async function resetPaused(instance: MachineInstance): Promise<void> {
  const { context, recorded } = instance
  const { qmp } = instance.machine()
  const late = AbortSignal.timeout(context.limits.commandMs)
  const awaited = (matches: (event: QmpEvent) => boolean) => {
    const seen = qmp.event(matches, late)
    // When a command fails, its error is thrown.
    seen.catch(() => {})
    return seen
  }
  const before = await devicesOf(instance)
  const leaving = recorded.record.leaving.map((key) => qemuId(specKey(key)))
  const deletions = leaving
    .filter((id) => before.includes(id))
    .map((id) => ({ id, seen: awaited(({ name, data }) => name === 'DEVICE_DELETED' && data.device === id) }))
  const seen = awaited(({ name, data }) => name === 'RESET' && data.guest !== true)
  await qmp.execute('system_reset', {}, instance.ending)
  await seen
  // QEMU keeps the backend of a device until it tells of its end.
  const after = await devicesOf(instance)
  await Promise.all(deletions.map((each) => (after.includes(each.id) ? undefined : each.seen)))
  await instance.eventsFollowed()
}
