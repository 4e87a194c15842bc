import type { Os } from '../os.ts'

export const ROOT = '/sys/fs/cgroup'

/** More folders than any kernel has of v1's hierarchies. */
const MOST_HIERARCHIES = 100

/** Whether the machine uses cgroup v2 alone. */
export async function usesCgroupV2(os: Os): Promise<boolean> {
  return os.scratch.exists(`${ROOT}/cgroup.controllers`)
}

/** The folders of v1's hierarchies, below {@link ROOT}; '' for v2. */
export async function hierarchies({ scratch }: Os, isV2: boolean): Promise<readonly string[]> {
  if (isV2) return ['']
  const folder = await scratch.openFolder(ROOT)
  try {
    return (await folder.names(MOST_HIERARCHIES)).map((name) => `/${name}`)
  } finally {
    await folder.close()
  }
}

export async function hasController(os: Os, controller: string, isV2: boolean): Promise<boolean> {
  if (!isV2) return os.scratch.exists(`${ROOT}/${controller}`)
  return (await os.scratch.readText(`${ROOT}/cgroup.controllers`)).trim().split(' ').includes(controller)
}
