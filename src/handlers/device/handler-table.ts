import { AgentError } from '../../base/errors.ts'
import { blk, diskByNode, scsi } from './disks.ts'
import type { DeviceHandler } from './handler.ts'
import { vfioPci, vfioPciGuestKernel } from './vfio-pci.ts'

/** Why there is no handler. */
interface Refusal {
  readonly refused: string
}

const S390: Refusal = { refused: 'is for s390x, not for this architecture' }

/** Every device type of the API (spec F.1), with its handler where there is one. */
const TABLE: ReadonlyMap<string, DeviceHandler | Refusal> = new Map<string, DeviceHandler | Refusal>([
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

/** The types that there are handlers for, sorted. */
export const DEVICE_TYPES: readonly string[] = [...TABLE]
  .filter(([, entry]) => !('refused' in entry))
  .map(([type]) => type)

/** The handler of a type. Throws UNIMPLEMENTED, saying why, where there is none, INVALID_ARGUMENT for any other type. */
export function deviceHandler(type: string): DeviceHandler {
  const entry = TABLE.get(type)
  if (entry === undefined) {
    throw new AgentError('INVALID_ARGUMENT', `Failed to find the device handler ${type}`)
  }
  if ('refused' in entry) throw new AgentError('UNIMPLEMENTED', `device type ${type} ${entry.refused}`)
  return entry
}
