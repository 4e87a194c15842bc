import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../../base/errors.ts'
import type { QmpClient } from '../qmp/client.ts'

/** How long a guest may take until its driver has a device that was plugged in. */
const DRIVER_MS = 60_000
const LOOK_MS = 50
/** Its driver goes on for a while after it has told that it is there. */
const SETTLES_MS = 500

export interface VsockDevice {
  /** Of the machine that it is in. */
  readonly qmp: QmpClient
  readonly id: string
  /** Fires when the machine ends. */
  readonly ending: AbortSignal
}

/**
 * Resolves once the guest's driver has the device. Its daemon goes deaf for good when it is dialled before: in a guest that boots, stands
 * still, or has just been given the device. Rejects with UNAVAILABLE after a minute, and when `ending` fires.
 */
export async function vsockDriverReady(device: VsockDevice): Promise<void> {
  await waits.get(device.qmp)
  if (!(await hasDriver(device))) await (waits.get(device.qmp) ?? vsockStarts(device))
}

/** All who dial a guest share one wait. */
const waits = new WeakMap<QmpClient, Promise<void>>()

/** Call it when the device was plugged in, or when its guest goes on. Later callers of {@link vsockDriverReady} wait for the same. */
export function vsockStarts(device: VsockDevice): Promise<void> {
  const wait = lookUntilThere(device).finally(() => {
    if (waits.get(device.qmp) === wait) waits.delete(device.qmp)
  })
  waits.set(device.qmp, wait)
  // Nobody may wait for it.
  wait.catch(() => {})
  return wait
}

async function lookUntilThere(device: VsockDevice): Promise<void> {
  const late = AbortSignal.timeout(DRIVER_MS)
  while (!(await hasDriver(device))) {
    if (late.aborted)
      throw new AgentError('UNAVAILABLE', `vsock: the guest's driver did not come within ${DRIVER_MS} ms`)
    await delay(LOOK_MS, undefined, { signal: device.ending })
  }
  await delay(SETTLES_MS, undefined, { signal: device.ending })
}

/** False for a device that has left for a while, too. */
async function hasDriver({ qmp, id, ending }: VsockDevice): Promise<boolean> {
  const own = `/machine/peripheral/${id}`
  // On a PCI bus, QEMU's virtio device is a part of the device.
  for (const path of [`${own}/virtio-backend`, own]) {
    const status = await qmp
      .command({ execute: 'x-query-virtio-status', arguments: { path } }, ending)
      .catch((error) => {
        if (!(error instanceof AgentError) || error.code !== 'INTERNAL') throw error
      })
    if (typeof status === 'object' && status !== null) return Reflect.get(status, 'vhost-started') === true
  }
  return false
}
