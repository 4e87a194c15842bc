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
 * Resolves once the guest's driver has the device, or after a minute. The device's daemon goes deaf for good when
 * it is dialled before. Rejects when `ending` fires.
 */
export async function vsockDriverReady({ qmp, id, ending }: VsockDevice): Promise<void> {
  const late = AbortSignal.timeout(DRIVER_MS)
  const path = `/machine/peripheral/${id}/virtio-backend`
  while (!late.aborted) {
    const status = await qmp
      .command({ execute: 'x-query-virtio-status', arguments: { path } }, ending)
      .catch(undefinedIfGone)
    const isThere = typeof status === 'object' && status !== null && Reflect.get(status, 'vhost-started')
    if (isThere === true) break
    await delay(LOOK_MS, undefined, { signal: ending })
  }
  await delay(SETTLES_MS, undefined, { signal: ending })
}

/** A device that leaves for a while is not known to QEMU. */
function undefinedIfGone(error: unknown): undefined {
  if (!(error instanceof AgentError) || error.code !== 'INTERNAL') throw error
}

const plugged = new WeakMap<QmpClient, Promise<void>>()

/** To be called once it was plugged in: whoever dials the guest waits for its driver. */
export function vsockPlugged(device: VsockDevice): void {
  const ready = vsockDriverReady(device)
  // Without a guest nobody dials it.
  ready.catch(() => {})
  plugged.set(device.qmp, ready)
}

/** Of the device that was plugged into the machine last. */
export function vsockReady({ qmp }: Pick<VsockDevice, 'qmp'>): Promise<void> | undefined {
  return plugged.get(qmp)
}
