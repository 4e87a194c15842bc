import { rename, stat } from 'node:fs/promises'
import { errnoOf } from '../../../base/errors.ts'
import type { MovePlan } from '../../../gen/microvm/instance/v1/handover.ts'
import { File_Access, type MigrationTarget } from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { pathOf } from '../../spec/component-path.ts'
import { nodeNames, specKey } from '../../spec/spec-key.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import { refused } from './move-host.ts'

/**
 * The disks of a plan whose place another file takes at the target: their content goes along. The target's file is there, and its disk
 * has the same size. Throws FAILED_PRECONDITION for one that cannot, or is not among those that were `agreed` on.
 */
export function disksAlong(
  { files }: Pick<MovePlan, 'files'>,
  target: MigrationTarget | undefined,
  agreed: readonly BulkDisk[],
): readonly BulkDisk[] {
  return files.flatMap(({ backend, field, path }) => {
    const file = backend === '' ? undefined : target?.replaceComponents[backend]?.file
    if (file === undefined || file.path === path) return []
    const at = `migration_target.replace_components: ${field}`
    if (file.access !== File_Access.READ_WRITE)
      throw refused(`${at}: read-only, want the same file as before`)
    const disk = agreed.find(({ key }) => key === backend)
    if (disk === undefined) throw refused(`disk ${backend}: StartMigration has not agreed on its copy`)
    return [disk]
  })
}

/**
 * The record of a machine whose disks `keys` have gone along, each with all its layers into one file. Throws FAILED_PRECONDITION for what
 * would be lost: snapshots, and encryption.
 */
export function flattened(
  record: InstanceRecord,
  keys: readonly string[],
  target: MigrationTarget | undefined,
): InstanceRecord {
  const { layers, snapshots, specification } = record
  if (snapshots.length > 0) throw refused('snapshots: would be lost, want none')
  for (const [key, { file }] of Object.entries(target?.replaceComponents ?? {})) {
    const before = specification?.backends[key]?.file
    const [wasEncrypted, isEncrypted] = [before, file].map((each) => each?.encryption !== undefined)
    if (before === undefined || file === undefined || wasEncrypted === isEncrypted) continue
    const [found, wanted] = isEncrypted ? ['a secret', 'none'] : ['none', 'a secret']
    const field = pathOf('backends', key, 'file', 'encryption')
    throw refused(`migration_target.replace_components: ${field}: ${found}, want ${wanted} as before`)
  }
  return { ...record, layers: layers.filter(({ backend }) => !keys.includes(backend)) }
}

/** What keeps a machine on its host of whose disks `along` go to another one: the layers of the others. */
export function layersLeft(
  { layers }: Pick<InstanceRecord, 'layers'>,
  along: readonly Pick<BulkDisk, 'key'>[],
): readonly string[] {
  const left = layers.map(({ backend }) => backend).filter((key) => !along.some((disk) => disk.key === key))
  const text = 'its layers are files of this host, want another file at the target, or them merged'
  return [...new Set(left)].map((key) => `${pathOf('backends', key)}: ${text}`)
}

/** A disk without layers. */
export function bulkDisk(key: string, sizeBytes: number): BulkDisk {
  return { key, node: nodeNames(specKey(key)).format, sizeBytes, sync: 'full' }
}

/**
 * Gives the files of disks that have gone to another host names by which nothing opens them. Returns the paths of those that keep
 * theirs, each with the reason.
 */
export async function setAside(paths: readonly string[], generation: bigint): Promise<readonly string[]> {
  const failures: string[] = []
  for (const path of paths) {
    try {
      if ((await stat(path)).isFile()) await rename(path, `${path}.stale-${generation}`)
    } catch (error) {
      // An earlier daemon has done it already.
      if (errnoOf(error) !== 'ENOENT') failures.push(`${path}: ${errnoOf(error)}`)
    }
  }
  return failures
}
