import { silentLogger } from '../../../../src/base/log.ts'
import type { Storage } from '../../../../src/gen/agent.ts'
import type { StorageRequest } from '../../../../src/handlers/storage/driver.ts'
import { HugePages } from '../../../../src/handlers/storage/drivers/huge-pages.ts'
import { createWatch } from '../../../../src/handlers/storage/drivers/watchable/watch-roots.ts'
import type { Os } from '../../../../src/os/os.ts'
import { StateStore } from '../../../../src/state/state-store.ts'
import { eventLog } from '../../fakes/event-log.ts'
import { MemoryStateFiles } from '../../fakes/files/memory-state-files.ts'
import { hotplugOf } from '../device/device-dependencies.ts'

export const ROOT = '/run/kata-containers'

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
