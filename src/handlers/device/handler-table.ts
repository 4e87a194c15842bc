import { AgentError } from '../../base/errors.ts'
import { blk, diskByNode, scsi } from './disks.ts'
import type { DeviceHandler } from './handler.ts'
import { vfioPci, vfioPciGuestKernel } from './vfio-pci.ts'

interface Unsupported {
  readonly reason: string
}

const S390: Unsupported = { reason: 'only supported on s390x' }

/** Every device type of the API, with its handler or the reason why it has none. */
const TABLE: ReadonlyMap<string, DeviceHandler | Unsupported> = new Map<string, DeviceHandler | Unsupported>([
  ['blk', blk],
  ['blk-ccw', S390],
  ['mmioblk', diskByNode],
  ['nvdimm', diskByNode],
  ['scsi', scsi],
  ['vfio-ap', S390],
  ['vfio-ap-cold', S390],
  ['vfio-pci', vfioPci],
  ['vfio-pci-gk', vfioPciGuestKernel],
])

/** Per device type of the API, why it has no handler; undefined if it has one. */
export const DEVICE_TYPE_REASONS: ReadonlyMap<string, string | undefined> = new Map(
  [...TABLE].map(([name, entry]) => [name, 'reason' in entry ? entry.reason : undefined]),
)

export const DEVICE_TYPES: readonly string[] = [...TABLE]
  .filter(([, entry]) => !('reason' in entry))
  .map(([type]) => type)

/** Throws UNIMPLEMENTED for a type of the API without a handler, INVALID_ARGUMENT for any other type. */
export function deviceHandler(type: string): DeviceHandler {
  const entry = TABLE.get(type)
  if (entry === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `Failed to find the device handler ${type}`)
  }
  if ('reason' in entry) throw new AgentError('UNIMPLEMENTED', `device type ${type}: ${entry.reason}`)
  return entry
}
