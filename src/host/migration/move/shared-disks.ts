import { createHash } from 'node:crypto'
import { lstat, realpath, rm, writeFile } from 'node:fs/promises'
import { errnoOf } from '../../../base/errors.ts'
import { File_Access, type Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { HypervisorID } from '../../../gen/vm.ts'
import { pathOf } from '../../spec/component-path.ts'
import { refused } from './move-host.ts'

/** A disk that the guest writes, in a file. */
interface Disk {
  readonly key: string
  readonly field: string
  readonly path: string
}

/** Names of devices here say which disk it is, on each host the same one. */
const BY_ID = '/dev/disk/by-id/'

/** The disks that both hosts are to open, but those that go along. */
function disksOf({ backends }: Specification, along: readonly string[]): readonly Disk[] {
  return Object.entries(backends).flatMap(([key, { file }]) => {
    const isShared = file?.access === File_Access.READ_WRITE && !along.includes(key)
    return isShared ? [{ key, field: `${pathOf('backends', key)}.file.path`, path: file.path }] : []
  })
}

/** Where the mark of a disk is, undefined for a device. It is of this run alone. */
async function markOf({ field, path }: Disk, us: HypervisorID): Promise<string | undefined> {
  try {
    const real = await realpath(path)
    if (!(await lstat(real)).isFile()) return undefined
    const run = createHash('sha256').update(`${us.podName}#${us.runId}`).digest('hex')
    return `${real}.move-${run.slice(0, 32)}`
  } catch (error) {
    throw refused(`${field}: ${path}: ${errnoOf(error)}`)
  }
}

/** Puts an empty file beside each disk, by which the target knows that it is the same one there. Throws FAILED_PRECONDITION. */
export async function markDisks(specification: Specification, us: HypervisorID): Promise<void> {
  for (const disk of disksOf(specification, [])) {
    const mark = await markOf(disk, us)
    if (mark === undefined) continue
    await writeFile(mark, '', { mode: 0o600 }).catch((error) => {
      throw refused(`${disk.field}: ${mark}: ${errnoOf(error)}`)
    })
  }
}

/** Removes the marks of this run, as far as they are there. Rejects with the first failure. */
export async function unmarkDisks(specification: Specification, us: HypervisorID): Promise<void> {
  for (const disk of disksOf(specification, [])) {
    const mark = await markOf(disk, us)
    if (mark !== undefined) await rm(mark, { force: true })
  }
}

/** Throws FAILED_PRECONDITION for a disk that is not marked by the source: another file than there, whose content is not the guest's. */
export async function checkShared(
  specification: Specification,
  us: HypervisorID,
  along: readonly string[],
): Promise<void> {
  for (const disk of disksOf(specification, along)) {
    const mark = await markOf(disk, us)
    if (mark === undefined && disk.path.startsWith(BY_ID)) continue
    if (mark === undefined)
      throw refused(`${disk.field}: ${disk.path}: a device of each host, want it by a name in ${BY_ID}`)
    const isMarked = await lstat(mark).then(
      (status) => status.isFile(),
      () => false,
    )
    if (!isMarked)
      throw refused(
        `${disk.field}: ${disk.path}: another file than at the source, want a shared one, or it replaced with one of another name`,
      )
  }
}
