import { abortable } from '../../../base/abort.ts'
import { messageOf } from '../../../base/errors.ts'
import type { MoveEnd } from '../../../gen/microvm/instance/v1/handover.ts'
import { PlugRequest } from '../../../gen/microvm/instance/v1/instance.ts'
import { plugBack, settlePlugs } from '../../instance/devices/plug.ts'
import { settleReplugs } from '../../instance/devices/replug.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { AtStep } from '../faults.ts'
import { goOn } from '../machine-state.ts'
import { connectTaps } from '../resume.ts'
import { restoreStreams } from '../saving/restore-streams.ts'

/** The controller has said that this host runs the machine. */
export async function letRun(instance: MachineInstance, end: MoveEnd, atStep: AtStep): Promise<void> {
  await atStep('arrival', 'streams')
  await listen(instance, end)
  if (end.unplugged.length > 0) {
    await atStep('arrival', 'plug')
    await plugAgain(instance, end)
  }
  await atStep('arrival', 'cont')
  await cont(instance, end)
}

/** How long the holder may take to listen. */
const STREAMS_MS = 5000

async function listen(instance: MachineInstance, end: MoveEnd): Promise<void> {
  const streams = end.streams.map(({ live, ...stream }) => ({ ...stream, isLive: live }))
  const restored = restoreStreams(instance, streams)
  await abortable(restored, AbortSignal.timeout(STREAMS_MS)).catch(warn(instance, 'streams not listened on'))
}

/** There is no other copy of the machine: it goes on without what fails. */
function warn({ context, key }: MachineInstance, text: string): (error: unknown) => void {
  return (error) => context.log.warn(text, { instance: key, error: messageOf(error) })
}

/** A device that cannot be plugged in now is tried again later. */
async function plugAgain(instance: MachineInstance, { unplugged }: MoveEnd): Promise<void> {
  const { key, plugParts, recorded } = instance
  const request = { ...PlugRequest.decode(unplugged), key }
  try {
    await plugBack(instance, request, plugParts)
  } catch (error) {
    warn(instance, 'device not plugged in')(error)
    const words = [request.deviceKey, Buffer.from(PlugRequest.encode(request).finish()).toString('base64')]
    const add = [recorded.step('replug', words)]
    await recorded.note({ add, kind: 'device', text: `device ${request.deviceKey} comes later` })
  }
}

async function cont(instance: MachineInstance, { running }: MoveEnd): Promise<void> {
  const hasTaps = await connectTaps(instance).catch(warn(instance, 'taps not set up'))
  if (running) await goOn(instance.machine().qmp, { wasRunning: true, signal: instance.ending })
  if (hasTaps === true) await announce(instance).catch(warn(instance, 'addresses not announced'))
  await settleReplugs(instance)
}

/**
 * Tells the network that the guest's cards are here now. QEMU sends RARP, by which bridges learn, and asks a virtio driver that can to
 * send gratuitous ARP and unsolicited neighbour advertisements of its own addresses. The times are QEMU's own.
 */
async function announce(instance: MachineInstance): Promise<void> {
  const times = { initial: 50, max: 550, rounds: 5, step: 100 }
  await instance.machine().qmp.execute('announce-self', times, instance.ending)
}

/** What another daemon has begun of it is done already. A guest that runs may not have been announced. */
export async function letRunAgain(instance: MachineInstance, end: MoveEnd): Promise<void> {
  const { running } = await instance.machine().qmp.execute('query-status', {}, instance.ending)
  if (!running) {
    await settlePlugs(instance).catch(warn(instance, 'devices not settled'))
    await listen(instance, end)
    const { deviceKey } = PlugRequest.decode(end.unplugged)
    const isThere = instance.record.specification?.devices[deviceKey] !== undefined
    if (end.unplugged.length > 0 && !isThere) await plugAgain(instance, end)
  }
  await cont(instance, end)
}
