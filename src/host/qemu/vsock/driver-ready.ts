import { setTimeout as delay } from 'node:timers/promises'
import type { QmpClient } from '../qmp/client.ts'

/** How long a guest may take until its driver has a device that was plugged in. */
const DRIVER_MS = 60_000
const LOOK_MS = 50
/** Its driver goes on for a while after it has told that it is there. */
const SETTLES_MS = 500

/**
 * Resolves once the guest's driver has the vsock device with this QEMU id, or after a minute. The device's daemon goes deaf for good when
 * it is dialled before. Rejects when `ending` fires.
 */
export async function vsockDriverReady(qmp: QmpClient, id: string, ending: AbortSignal): Promise<void> {
  const late = AbortSignal.timeout(DRIVER_MS)
  const path = `/machine/peripheral/${id}/virtio-backend`
  while (!late.aborted) {
    const status = await qmp.command({ execute: 'x-query-virtio-status', arguments: { path } }, ending)
    const isThere = typeof status === 'object' && status !== null && Reflect.get(status, 'vhost-started')
    if (isThere === true) break
    await delay(LOOK_MS, undefined, { signal: ending })
  }
  await delay(SETTLES_MS, undefined, { signal: ending })
}

const plugged = new WeakMap<QmpClient, Promise<void>>()

/** To be called once a vsock device was plugged in: whoever dials the guest waits for its driver. */
export function vsockPlugged(qmp: QmpClient, id: string, ending: AbortSignal): void {
  const ready = vsockDriverReady(qmp, id, ending)
  // Without a guest nobody dials it.
  ready.catch(() => {})
  plugged.set(qmp, ready)
}

/** Of the device that was plugged in last; undefined for one that is there since the start. */
export function pluggedVsockReady(qmp: QmpClient): Promise<void> | undefined {
  return plugged.get(qmp)
}
