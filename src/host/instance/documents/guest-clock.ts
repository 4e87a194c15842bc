import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { MAX_CLOCK_SECONDS, type Machine } from '../../machine/machine.ts'
import type { Machine as RunningMachine } from '../machine/machine.ts'
import type { RecordedInstance } from '../record/recorded-instance.ts'
import { clockStart, machinesOf } from './document-record.ts'

/** An instance, as far as its clock is kept. */
interface ClockOwner {
  readonly record: Readonly<InstanceRecord>
  readonly recorded: Pick<RecordedInstance, 'commit'>
  readonly ending: AbortSignal
  machine(): Pick<RunningMachine, 'qmp'>
  follow(name: string, change: () => Promise<void>): void
}

/** A clock that is off by less is as it was: it has whole seconds, QEMU takes a while to begin, and so does its answer. */
const SLACK_SECONDS = 5

/** Keeps the clock that the guest has set, `offset` seconds from how it began, for later boots. Waits for no change. */
export function followClock(instance: ClockOwner, offset: unknown): void {
  const { document } = instance.record
  if (document === undefined || typeof offset !== 'number') return
  // The change before it may end this machine, whose guest sets its clock as it shuts down.
  const fromUtc = Number(document.clockStart ?? 0n) + offset
  instance.follow('clock', () => keepClock(instance, fromUtc))
}

/** Notes how the clock of a machine has begun that has not run yet: its daemons may have been slow to start. To be called in a change. */
export async function noteClockStart(instance: ClockOwner): Promise<void> {
  const { document } = instance.record
  if (document === undefined) return
  // Machine microvm may have none.
  const fromUtc = await clockOf(instance).catch(() => undefined)
  if (fromUtc === undefined || Math.abs(fromUtc - Number(document.clockStart ?? 0n)) <= 1) return
  await commitClockStart(instance, fromUtc)
}

/** Keeps the clock that the guest may have set while no daemon ran. To be called in a change. */
export async function readClock(instance: ClockOwner): Promise<void> {
  const { current } = machinesOf(instance.record) ?? {}
  if (current === undefined) return
  if (instance.record.document?.clockStart === undefined)
    await commitClockStart(instance, clockStart(current))
  await keepClock(instance, await clockOf(instance))
}

async function commitClockStart({ record, recorded }: ClockOwner, seconds: number): Promise<void> {
  const { document } = record
  if (document === undefined) return
  const set = { document: { ...document, clockStart: BigInt(seconds) } }
  await recorded.commit({ set, kind: 'state', text: `the clock began ${seconds} s ahead of UTC` })
}

/** By how many seconds the guest's clock is ahead of UTC. */
async function clockOf(instance: ClockOwner): Promise<number> {
  const { qmp } = instance.machine()
  const clock = { path: '/machine', property: 'rtc-time' } as const
  const time = await qmp.execute('qom-get', clock, instance.ending)
  const { tm_year, tm_mon, tm_mday, tm_hour, tm_min, tm_sec } = time
  const guestMs = Date.UTC(tm_year + 1900, tm_mon, tm_mday, tm_hour, tm_min, tm_sec)
  return Math.round((guestMs - Date.now()) / 1000)
}

async function keepClock({ record, recorded }: ClockOwner, fromUtc: number): Promise<void> {
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
