import { randomUUID } from 'node:crypto'
import { State } from '../../gen/microvm/instance/v1/instance.ts'
import type { QmpEvent } from '../qemu/qmp/message.ts'
import { nodeNames, specKey } from '../spec/spec-key.ts'
import { vsockGoesOn } from './devices/deaf-vsock.ts'
import { servedDisks } from './devices/disk-in-use.ts'
import { finishUnplug } from './devices/plug.ts'
import { settleReplugs } from './devices/replug.ts'
import { followClock } from './documents/guest-clock.ts'
import type { MachineInstance } from './instance.ts'
import { streamRows } from './record/instance-record.ts'
import { layerNode } from './snapshots/layers.ts'
import { endStreams } from './streams.ts'

/** How often a guest may reboot by itself, unless the specification says. */
const REBOOT_LIMIT = { count: 3, seconds: 60 }

/** SeaBIOS that is reset resets the machine again, once or more often. */
const FIRMWARE_MS = 1000

/** Lets the record follow what the guest or QEMU has done by itself. Must not wait for a change of the instance. */
export async function followGuest(instance: MachineInstance, { name, data }: QmpEvent): Promise<void> {
  switch (name) {
    case 'RESET':
      return await onReset(instance, data.guest === true)
    case 'GUEST_PANICKED':
      return instance.end({ kind: 'state', reason: 'the guest panicked' })
    case 'RESUME':
      vsockGoesOn(instance)
      return instance.follow('state', () => followState(instance))
    case 'STOP':
      return instance.follow('state', () => followState(instance))
    case 'DEVICE_DELETED':
      return instance.follow('unplug', async () => {
        await finishUnplug(instance)
        // One that left late for an operation that has failed.
        await settleReplugs(instance)
      })
    case 'RTC_CHANGE':
      return followClock(instance, data.offset)
    case 'BLOCK_IO_ERROR':
      return await onDiskError(instance, data)
  }
}

/** QEMU may pause by itself, such as at an error of a disk. */
async function followState(instance: MachineInstance): Promise<void> {
  const { machine } = instance.context
  if (machine === undefined) return
  const { running, status } = await machine.qmp.execute('query-status', {}, instance.ending)
  const current = running ? State.RUNNING : State.PAUSED
  if (current === instance.record.current) return
  const text = `QEMU says ${status}`
  await instance.recorded.commit({ set: { current, desired: current, reason: text }, kind: 'state', text })
}

async function onReset(instance: MachineInstance, byGuest: boolean): Promise<void> {
  const { record, recorded, context } = instance
  const now = context.clock.monotonicMs()
  if (byGuest && now - instance.resetMs < FIRMWARE_MS)
    // The boot has hardly begun: those who wait for its guest go on waiting.
    return await recorded.commit({ kind: 'state', text: 'the firmware has reset the machine' })
  instance.resetMs = now
  const { count, seconds } = record.specification?.rebootLimit ?? REBOOT_LIMIT
  const recent = record.rebootsMs.filter((time) => now - Number(time) < seconds * 1000)
  const rebootsMs = byGuest ? [...recent, BigInt(now)] : recent
  const set = { bootId: randomUUID(), rebootsMs, reboots: record.reboots + (byGuest ? 1 : 0) }
  const text = byGuest ? 'the guest has rebooted' : 'the machine was reset'
  instance.beginBoot(text)
  const drop = await endStreams(instance)
  await recorded.commit({ set, drop, rows: streamRows(drop), kind: 'state', text })
  if (rebootsMs.length <= count) return
  const reason = `the guest rebooted more than ${count} times in ${seconds} s`
  instance.end({ kind: 'state', reason })
}

async function onDiskError(instance: MachineInstance, data: QmpEvent['data']): Promise<void> {
  const node = String(data['node-name'])
  const { document, layers, specification } = instance.record
  const disks = { ...specification?.backends, ...servedDisks(document) }
  const names = Object.keys(disks).map((key) => nodeNames(specKey(key)))
  const known = [...names.flatMap((each) => Object.values(each)), ...layers.map(({ id }) => layerNode(id))]
  if (!known.includes(node)) return
  const text = `${String(data.operation)}: ${String(data.reason)}`
  const isNew = !instance.diskErrors.has(node)
  instance.diskErrors.set(node, text)
  if (isNew) await instance.recorded.commit({ kind: 'backend', text: `block node ${node}: ${text}` })
}
