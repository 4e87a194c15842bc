import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { StorageGroup } from './drivers/image/layer-options.ts'
import { parseMountOptions } from './mount-options.ts'

export interface AttachedStorage {
  readonly requested: StorageGroup
  /** Set for a disk. */
  readonly device: string | undefined
}

/**
 * Throws FAILED_PRECONDITION when `requested` differs from the attached storage in driver, source or fstype, or does not
 * ask for `ro` while it is attached read-only. Two sources of disks are the same when `deviceOf` finds the attached device.
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

export function haveSameOptions(one: StorageGroup, other: StorageGroup): boolean {
  return optionsOf(one) === optionsOf(other)
}

export function warnOfOptions(log: Logger, attached: StorageGroup, requested: StorageGroup): void {
  log.warn('storage keeps the options of its first request', {
    mountPoint: requested[0].mountPoint,
    options: optionsOf(attached),
    requested: optionsOf(requested),
  })
}

function namesOf(storages: StorageGroup): string {
  return storages
    .map(({ driver, source, fstype }) => `${driver} "${source}" with fstype "${fstype}"`)
    .join(', ')
}

/** Whether two single storages can differ only in their sources. */
function hasSameKind(one: StorageGroup, other: StorageGroup): boolean {
  const [first] = one
  const [second] = other
  const isSame = first.driver === second.driver && first.fstype === second.fstype
  return isSame && one.length === 1 && other.length === 1
}

/** False for an image of several layers, whose sources were compared before. */
function isReadOnly(storages: StorageGroup): boolean {
  return storages.length === 1 && parseMountOptions(storages[0].options).flags.includes('ro')
}

/** Sorted, because the order matters only for options that cancel each other. */
function optionsOf(storages: StorageGroup): string {
  return storages.map(({ options }) => options.toSorted().join(',')).join('; ')
}
