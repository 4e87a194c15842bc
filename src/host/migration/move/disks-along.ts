import { rename, stat } from 'node:fs/promises'
import { errnoOf } from '../../../base/errors.ts'
import type { MovePlan } from '../../../gen/microvm/instance/v1/handover.ts'
import { File_Access, type MigrationTarget } from '../../../gen/microvm/instance/v1/instance.ts'
import { nodeNames, specKey } from '../../spec/spec-key.ts'
import type { BulkDisk } from '../bulk/bulk.ts'
import { refused } from './move-host.ts'

/**
 * The disks of a plan whose place another file takes at the target: their content goes along. The target's file is there, and has the
 * same size. Throws FAILED_PRECONDITION for one that cannot.
 */
export function disksAlong(
  { files }: Pick<MovePlan, 'files'>,
  target: MigrationTarget | undefined,
): readonly BulkDisk[] {
  return files.flatMap(({ backend, field, path, sizeBytes }) => {
    const file = backend === '' ? undefined : target?.replaceComponents[backend]?.file
    if (file === undefined || file.path === path) return []
    const at = `migration_target.replace_components: ${field}`
    if (file.access !== File_Access.READ_WRITE)
      throw refused(`${at}: read-only, want the same file as before`)
    if (file.encryption !== undefined) throw refused(`${at}: encrypted, want the same file as before`)
    return [bulkDisk(backend, Number(sizeBytes))]
  })
}

/** The same disk in the words of the source, which has no layers. */
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
