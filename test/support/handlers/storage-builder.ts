import { silentLogger } from '../../../src/base/log.ts'
import type { Storage } from '../../../src/gen/agent.ts'
import type { DeviceDependencies } from '../../../src/handlers/device/handler.ts'
import type { StorageRequest } from '../../../src/handlers/storage/driver.ts'
import { HugePages } from '../../../src/handlers/storage/drivers/huge-pages.ts'
import { createWatch } from '../../../src/handlers/storage/drivers/watchable/watch-roots.ts'
import { PciBus } from '../../../src/hotplug/pci-bus.ts'
import type { HotplugDependencies } from '../../../src/hotplug/wait-for-device.ts'
import type { Os } from '../../../src/os/os.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { eventLog } from '../fakes/events.ts'
import { MemoryStateFiles } from '../fakes/memory-state-files.ts'

export const ROOT = '/run/kata-containers'

/** A request for a tmpfs, with `changes`. */
export function storageOf(changes: Partial<Storage> = {}): Storage {
  return {
    driver: 'ephemeral',
    driverOptions: [],
    source: 'tmpfs',
    fstype: 'tmpfs',
    options: [],
    mountPoint: `${ROOT}/sandbox/shm`,
    fsGroup: undefined,
    shared: false,
    ...changes,
  }
}

/** The dependencies of waiting for devices on the given machine, where every driver loads. */
export function hotplugOf(os: Pick<Os, 'clock' | 'files' | 'uevents'>): HotplugDependencies {
  return { ...os, pciBus: new PciBus(os.files), timeoutMs: 3000, drivers: { failures: [] } }
}

/** The folder of CDI specifications, and how long to wait for them. */
export const CDI = { folder: '/run/cdi', timeoutMs: 100_000, readsVariable: true }

/** The dependencies of device handlers on the given machine. */
export function deviceDependenciesOf(os: Os): DeviceDependencies {
  return { os, log: silentLogger(), hotplug: hotplugOf(os), cdi: CDI }
}

/** The dependencies of storage drivers on the given machine. */
export function dependenciesOf(os: Os): StorageRequest {
  return {
    os,
    log: silentLogger(),
    allowedRoots: [ROOT],
    bundlesRoot: ROOT,
    hotplug: hotplugOf(os),
    events: eventLog(),
    state: new StateStore(new MemoryStateFiles()),
    hugePages: new HugePages(os.files),
    watch: createWatch(os.clock),
    owner: 'c1',
  }
}
