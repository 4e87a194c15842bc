import { dirname } from 'node:path/posix'
import { errnoOf } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'

/** Which CPUs a container may run on, once more of them are online. */
export interface CpusetChange {
  /** Path of the container's cgroup in the hierarchy, and the hierarchy's own (`/sys/fs/cgroup/cpuset`). */
  readonly path: string
  readonly hierarchy: string
  readonly isV2: boolean
  /** What the container was given (`0-1,3`); empty when it was not limited. */
  readonly cpus: string
  /** All CPUs that are online. */
  readonly online: string
}

/**
 * Lets a container have CPUs that came online later than its cgroup: every cgroup above it is widened to those online,
 * the topmost first, for a cgroup of v1 can have no CPU that the one above lacks. Then it gets its own.
 */
export async function refreshCpuset(files: Files, change: CpusetChange): Promise<void> {
  const { path, isV2, cpus, online } = change
  const fileOf = (cgroup: string) => `${change.hierarchy}${cgroup}/cpuset.cpus`
  for (const ancestor of ancestorsOf(path)) await widen(files, fileOf(ancestor), change)
  if (cpus !== '') await unlessGone(() => files.write(fileOf(path), cpus))
  // Only v1 copied a list when the cgroup was made; on v2 one without limits follows what is above it.
  else if (!isV2) await unlessGone(() => files.write(fileOf(path), online))
}

/** The cgroups above one, without the hierarchy's root, which always has all CPUs. */
function ancestorsOf(path: string): string[] {
  const parent = dirname(path)
  return parent === '/' ? [] : [...ancestorsOf(parent), parent]
}

async function widen(files: Files, file: string, { isV2, online }: CpusetChange): Promise<void> {
  await unlessGone(async () => {
    // Empty on v2: all CPUs, also those still to come.
    if (isV2 && (await files.readText(file)).trim() === '') return
    await files.write(file, online)
  })
}

/** A container may be removed meanwhile, and a hierarchy without the cpuset controller has no such files. */
async function unlessGone(work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error
  }
}
