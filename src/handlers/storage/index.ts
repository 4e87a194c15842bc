import { AgentError } from '../../base/errors.ts'
import type { StorageDriver } from './driver.ts'
import { blk, mmioblk, nvdimm, scsi } from './drivers/block.ts'
import { ephemeral } from './drivers/ephemeral.ts'
import { erofsMultiLayer } from './drivers/erofs-multi-layer.ts'
import { local } from './drivers/local.ts'
import { overlayfs } from './drivers/overlayfs.ts'
import { nineP, virtioFs } from './drivers/shared-folder.ts'
import { watchableBind } from './drivers/watchable/watchable-bind.ts'

/** Why there is no driver. */
interface Refusal {
  readonly refused: string
}

/** Every driver name of the API (spec E.3), with its driver where there is one. */
const TABLE: ReadonlyMap<string, StorageDriver | Refusal> = new Map<string, StorageDriver | Refusal>([
  ['9p', nineP],
  ['blk', blk],
  ['blk-ccw', { refused: 'is for s390x, not for this architecture' }],
  ['ephemeral', ephemeral],
  ['erofs.multi-layer', erofsMultiLayer],
  ['image_guest_pull', { refused: 'needs a helper that pulls images, which this guest does not have' }],
  ['local', local],
  ['mmioblk', mmioblk],
  ['nvdimm', nvdimm],
  ['overlayfs', overlayfs],
  ['scsi', scsi],
  ['virtio-fs', virtioFs],
  ['watchable-bind', watchableBind],
])

/** The names of the drivers that there are, sorted. */
export const STORAGE_DRIVER_NAMES: readonly string[] = [...TABLE]
  .filter(([, entry]) => !('refused' in entry))
  .map(([name]) => name)

/** The driver of a name. Throws UNIMPLEMENTED, saying why, where there is none, INVALID_ARGUMENT for any other name. */
export function storageDriver(name: string): StorageDriver {
  const entry = TABLE.get(name)
  if (entry === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `Failed to find the storage handler ${name}`)
  }
  if ('refused' in entry) throw new AgentError('UNIMPLEMENTED', `storage driver ${name} ${entry.refused}`)
  return entry
}
