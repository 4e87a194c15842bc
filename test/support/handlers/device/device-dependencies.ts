import { silentLogger } from '../../../../src/base/log.ts'
import type { DeviceContext } from '../../../../src/handlers/device/handler.ts'
import { PciBus } from '../../../../src/hotplug/pci/pci-bus.ts'
import type { Hotplug } from '../../../../src/hotplug/wait-for-device.ts'
import type { Os } from '../../../../src/os/os.ts'

/** The dependencies of waiting for devices; every driver loads. */
export function hotplugOf(os: Pick<Os, 'clock' | 'files' | 'uevents'>): Hotplug {
  return { ...os, pciBus: new PciBus(os.files), timeoutMs: 3000, drivers: { failures: [] } }
}

export const CDI = { folder: '/run/cdi', timeoutMs: 100_000, readsVariable: true }

export function deviceDependenciesOf(os: Os): DeviceContext {
  return { os, log: silentLogger(), hotplug: hotplugOf(os), cdi: CDI }
}
