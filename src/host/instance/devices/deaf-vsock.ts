import { readdir, readFile } from 'node:fs/promises'
import { vsockStarts } from '../../qemu/vsock/driver-ready.ts'
import { vsockOf } from '../connect-agent.ts'
import { canBeUnplugged } from '../documents/document-record.ts'
import { answer } from '../holder/ask-holder.ts'
import type { MachineInstance } from '../instance.ts'
import { VSOCK_CHILD } from '../machine/daemon-steps.ts'
import { settleReplugs, unplugForAWhile } from './replug.ts'

/** A guest that stood still goes on: its vsock starts again, and may have gone deaf meanwhile. */
export function vsockGoesOn(instance: MachineInstance): void {
  const device = instance.context.machine && vsockOf(instance)
  if (device === undefined) return
  vsockStarts(device).then(
    () => instance.follow('vsock', () => healVsock(instance)),
    () => {},
  )
}

/**
 * vhost-device-vsock 0.3.0 loses its only worker thread, for good, when something is sent to a guest that stands still. The guest gets
 * another device then, with a daemon of its own.
 */
async function healVsock(instance: MachineInstance): Promise<void> {
  const { context } = instance
  const holder = context.machine?.holder
  const device = holder && vsockOf(instance)
  if (holder === undefined || device === undefined) return
  const children = await answer(context, holder.children())
  const daemon = children.find(({ name, exit }) => name === VSOCK_CHILD && exit === undefined)
  if (daemon === undefined || !(await isDeaf(daemon.pid))) return
  if (!canBeUnplugged(instance.record, device.key)) {
    context.log.warn('vsock deaf until the next start: its device cannot leave', { instance: instance.key })
    return
  }
  context.log.warn('vsock deaf: the guest gets another device', { instance: instance.key })
  try {
    await unplugForAWhile(instance, device.key, context.limits.unplugMs)
  } finally {
    await settleReplugs(instance)
  }
}

async function isDeaf(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`).catch(() => [])
  const names = await Promise.all(
    threads.map((each) => readFile(`/proc/${pid}/task/${each}/comm`, 'utf8').catch(() => '')),
  )
  // One that has ended has no threads.
  return names.length > 0 && !names.includes('vring_worker\n')
}
