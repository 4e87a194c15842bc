import { AgentError } from '../../base/errors.ts'
import { blk } from './blk.ts'
import type { StorageDriver } from './driver.ts'
import { ephemeral } from './ephemeral.ts'
import { local } from './local.ts'

/** Every driver name of the API (spec E.3), with its driver once there is one. */
const TABLE: ReadonlyMap<string, StorageDriver | 'unimplemented'> = new Map<
  string,
  StorageDriver | 'unimplemented'
>([
  ['blk', blk],
  ['blk-ccw', 'unimplemented'],
  ['ephemeral', ephemeral],
  ['erofs.multi-layer', 'unimplemented'],
  ['image_guest_pull', 'unimplemented'],
  ['local', local],
  ['mmioblk', 'unimplemented'],
  ['nvdimm', 'unimplemented'],
  ['overlayfs', 'unimplemented'],
  ['scsi', 'unimplemented'],
  ['virtio-fs', 'unimplemented'],
  ['watchable-bind', 'unimplemented'],
])

/** The names of the drivers that there are, sorted. */
export const STORAGE_DRIVER_NAMES: readonly string[] = [...TABLE]
  .filter(([, driver]) => driver !== 'unimplemented')
  .map(([name]) => name)

/** The driver of a name. Throws UNIMPLEMENTED when it is still to be written, INVALID_ARGUMENT for any other name. */
export function storageDriver(name: string): StorageDriver {
  const driver = TABLE.get(name)
  if (driver === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `Failed to find the storage handler ${name}`)
  }
  if (driver === 'unimplemented') {
    throw new AgentError('UNIMPLEMENTED', `storage driver ${name} is not supported by this agent`)
  }
  return driver
}
