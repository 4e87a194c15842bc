import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { MAX_CLOCK_SECONDS, type Machine } from '../../machine/machine.ts'
import type { MachineInstance } from '../instance.ts'
import { clockStart, machinesOf } from './document-record.ts'

/** A clock that is off by less is as it was: it has whole seconds, QEMU takes a while to begin, and so does its answer. */
const SLACK_SECONDS = 5

/** Keeps the clock that the guest has set, `offset` seconds from how it began, for later boots. Waits for no change. */
export function followClock(instance: MachineInstance, offset: unknown): void {
  const { document } = instance.record
  if (document === undefined || typeof offset !== 'number') return
  // The change before it may end this machine, whose guest sets its clock as it shuts down.
  const fromUtc = Number(document.clockStart) + offset
  instance.follow('clock', () => keepClock(instance, fromUtc))
}

/** Keeps the clock that the guest may have set while no daemon ran. To be called in a change. */
export async function readClock(instance: MachineInstance): Promise<void> {
  if (instance.record.document === undefined) return
  const { qmp } = instance.machine()
  const clock = { path: '/machine', property: 'rtc-time' } as const
  const time = await qmp.execute('qom-get', clock, instance.ending)
  const { tm_year, tm_mon, tm_mday, tm_hour, tm_min, tm_sec } = time
  const guestMs = Date.UTC(tm_year + 1900, tm_mon, tm_mday, tm_hour, tm_min, tm_sec)
  await keepClock(instance, Math.round((guestMs - Date.now()) / 1000))
}

async function keepClock({ record, recorded }: MachineInstance, fromUtc: number): Promise<void> {
  const set = withClock(record, fromUtc)
  if (set !== undefined) await recorded.commit({ set, kind: 'state', text: 'the guest has set its clock' })
}

function withClock(record: Readonly<InstanceRecord>, fromUtc: number): Partial<InstanceRecord> | undefined {
  const machines = machinesOf(record)
  if (record.document === undefined || machines === undefined) return undefined
  const { current, desired, saved } = machines
  const adjustmentSeconds = fromUtc - (clockStart(saved) - saved.clock.adjustmentSeconds)
  if (Math.abs(adjustmentSeconds - saved.clock.adjustmentSeconds) < SLACK_SECONDS) return undefined
  if (Math.abs(adjustmentSeconds) > MAX_CLOCK_SECONDS) return undefined
  const of = (machine: Machine | undefined) =>
    machine === undefined
      ? ''
      : JSON.stringify({ ...machine, clock: { ...machine.clock, adjustmentSeconds } })
  return {
    document: { ...record.document, saved: of(saved), desired: of(desired), current: of(current) },
  }
}
