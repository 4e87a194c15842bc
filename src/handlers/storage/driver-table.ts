import { AgentError } from '../../base/errors.ts'
import type { StorageDriver } from './driver.ts'
import { blk, mmioblk, nvdimm, scsi } from './drivers/block.ts'
import { ephemeral } from './drivers/ephemeral.ts'
import { erofsMultiLayer } from './drivers/image/mount-image.ts'
import { local } from './drivers/local.ts'
import { overlayfs } from './drivers/overlayfs.ts'
import { nineP, virtioFs } from './drivers/shared-folder.ts'
import { watchableBind } from './drivers/watchable/watchable-bind.ts'

interface Unsupported {
  readonly reason: string
}

/** Every driver name of the API, with its driver or the reason why it has none. */
const TABLE: ReadonlyMap<string, StorageDriver | Unsupported> = new Map<string, StorageDriver | Unsupported>([
  ['9p', nineP],
  ['blk', blk],
  ['blk-ccw', { reason: 'only supported on s390x' }],
  ['ephemeral', ephemeral],
  ['erofs.multi-layer', erofsMultiLayer],
  ['image_guest_pull', { reason: 'not supported, this guest has no helper that pulls images' }],
  ['local', local],
  ['mmioblk', mmioblk],
  ['nvdimm', nvdimm],
  ['overlayfs', overlayfs],
  ['scsi', scsi],
  ['virtio-fs', virtioFs],
  ['watchable-bind', watchableBind],
])

/** Per driver name of the API, why this agent does not implement it; undefined if it does. */
export const STORAGE_DRIVER_REASONS: ReadonlyMap<string, string | undefined> = new Map(
  [...TABLE].map(([name, entry]) => [name, 'reason' in entry ? entry.reason : undefined]),
)

export const STORAGE_DRIVER_NAMES: readonly string[] = [...TABLE]
  .filter(([, entry]) => !('reason' in entry))
  .map(([name]) => name)

/** Throws UNIMPLEMENTED for a driver of the API that this agent lacks, INVALID_ARGUMENT for any other name. */
export function storageDriver(name: string): StorageDriver {
  const entry = TABLE.get(name)
  if (entry === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `Failed to find the storage handler ${name}`)
  }
  if ('reason' in entry) throw new AgentError('UNIMPLEMENTED', `storage driver ${name}: ${entry.reason}`)
  return entry
}
