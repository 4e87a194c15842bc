import { dirname } from 'node:path/posix'
import { errnoOf } from '../../base/errors.ts'
import type { Files } from '../files/files.ts'

interface CpusetChange {
  /** The container's cgroup, below `hierarchy` (`/sys/fs/cgroup/cpuset`). */
  readonly path: string
  readonly hierarchy: string
  readonly isV2: boolean
  /** The container's limit (`0-1,3`), or empty. */
  readonly cpus: string
  readonly online: string
}

/** Widens the cgroups above first, from the top: on v1, a cgroup can have no CPU that its parent lacks. */
export async function refreshCpuset(files: Files, change: CpusetChange): Promise<void> {
  const { path, isV2, cpus, online } = change
  const fileOf = (cgroup: string) => `${change.hierarchy}${cgroup}/cpuset.cpus`
  for (const ancestor of ancestorsOf(path)) await widen(files, fileOf(ancestor), change)
  if (cpus !== '') await unlessGone(() => files.write(fileOf(path), cpus))
  // On v1 the runtime copied the parent's list into it; on v2 a cgroup without limits follows its parent.
  else if (!isV2) await unlessGone(() => files.write(fileOf(path), online))
}

/** Without the hierarchy's root, which always has all CPUs. */
function ancestorsOf(path: string): string[] {
  const parent = dirname(path)
  return parent === '/' ? [] : [...ancestorsOf(parent), parent]
}

async function widen(files: Files, file: string, { isV2, online }: CpusetChange): Promise<void> {
  await unlessGone(async () => {
    // Empty on v2: all CPUs, including later ones.
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
