import { AgentError } from '../../base/errors.ts'
import { blk, diskByNode, scsi } from './disks.ts'
import type { DeviceHandler } from './handler.ts'
import { vfioPci, vfioPciGuestKernel } from './vfio-pci.ts'

/** A device type of the API that this agent does not implement. */
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

/** Every type of the API, with the reason why it has no handler here; undefined where it has one. */
export const DEVICE_TYPE_REASONS: ReadonlyMap<string, string | undefined> = new Map(
  [...TABLE].map(([name, entry]) => [name, 'reason' in entry ? entry.reason : undefined]),
)

/** The types that have a handler, sorted. */
export const DEVICE_TYPES: readonly string[] = [...TABLE]
  .filter(([, entry]) => !('reason' in entry))
  .map(([type]) => type)

/**
 * The handler of a type. Throws UNIMPLEMENTED with the reason for a type of the API that has no handler here, and
 * INVALID_ARGUMENT for any other type.
 */
export function deviceHandler(type: string): DeviceHandler {
  const entry = TABLE.get(type)
  if (entry === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `Failed to find the device handler ${type}`)
  }
  if ('reason' in entry) throw new AgentError('UNIMPLEMENTED', `device type ${type}: ${entry.reason}`)
  return entry
}
