import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { StorageGroup } from './drivers/image/layer-options.ts'
import { parseMountOptions } from './mount-options.ts'

/** What is attached at a mount point. */
export interface AttachedStorage {
  readonly requested: StorageGroup
  /** The device node, when it is a disk. */
  readonly device: string | undefined
}

/**
 * Whether a later request for a mount point asks for the storage that is attached there: the same driver, the same source
 * and the same fstype. Sources that are written in two ways are the same when they lead to one device, which `deviceOf`
 * finds; it is undefined for what is no disk. Throws FAILED_PRECONDITION naming both when it asks for another storage, or
 * for one to write to where the attached one is read-only, and what `deviceOf` throws.
 */
export async function refuseOtherStorage(
  attached: AttachedStorage,
  requested: StorageGroup,
  deviceOf: (() => Promise<string>) | undefined,
): Promise<void> {
  const [{ mountPoint }] = requested
  if (namesOf(requested) !== namesOf(attached.requested)) {
    const isSameDisk = hasSameKind(attached.requested, requested) && attached.device !== undefined
    if (!isSameDisk || (await deviceOf?.()) !== attached.device) {
      throw new AgentError(
        'FAILED_PRECONDITION',
        `storage ${mountPoint}: ${namesOf(requested)}, want ${namesOf(attached.requested)}, which is attached there`,
      )
    }
  }
  if (isReadOnly(attached.requested) && !isReadOnly(requested)) {
    const text = `storage ${mountPoint}: is attached read-only, want option ro`
    throw new AgentError('FAILED_PRECONDITION', text)
  }
}

/** Whether the options of two requests differ; those of the first hold for both. */
export function haveSameOptions(one: StorageGroup, other: StorageGroup): boolean {
  return optionsOf(one) === optionsOf(other)
}

/** Says that a request got a storage with options other than its own. */
export function warnOfOptions(log: Logger, attached: StorageGroup, requested: StorageGroup): void {
  log.warn('storage keeps the options of its first request', {
    mountPoint: requested[0].mountPoint,
    options: optionsOf(attached),
    requested: optionsOf(requested),
  })
}

/** Driver, source and fstype of each storage, as a text. */
function namesOf(storages: StorageGroup): string {
  return storages
    .map(({ driver, source, fstype }) => `${driver} "${source}" with fstype "${fstype}"`)
    .join(', ')
}

/** Whether both are one storage of the same driver and fstype, so that only their sources differ. */
function hasSameKind(one: StorageGroup, other: StorageGroup): boolean {
  const [first] = one
  const [second] = other
  const isSame = first.driver === second.driver && first.fstype === second.fstype
  return isSame && one.length === 1 && other.length === 1
}

/** False for an image: whether it can be written to depends on its layers, which are compared before. */
function isReadOnly(storages: StorageGroup): boolean {
  return storages.length === 1 && parseMountOptions(storages[0].options).flags.includes('ro')
}

/** The options in the order of the alphabet: their order says nothing, except for those that cancel each other. */
function optionsOf(storages: StorageGroup): string {
  return storages.map(({ options }) => options.toSorted().join(',')).join('; ')
}
