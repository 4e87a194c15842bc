import { ROOT, usesCgroupV2 } from '../../os/cgroup/hierarchies.ts'
import type { Os } from '../../os/os.ts'
import type { Container } from './container.ts'

/** Figures that cannot be read are undefined. */
export interface ContainerFigures {
  readonly id: string
  readonly cpuSeconds: number | undefined
  readonly memoryBytes: bigint | undefined
  readonly pids: bigint | undefined
  readonly oomKills: bigint
}

/** Containers that one call of the thread pool reads. */
const BATCH = 32

/** Reads three small files of each cgroup, where StatsContainer reads more than a dozen. */
export async function containerFigures(
  os: Os,
  containers: readonly Container[],
): Promise<ContainerFigures[]> {
  const files = (await usesCgroupV2(os)) ? filesV2 : filesV1
  const figures: ContainerFigures[] = []
  for (let begin = 0; begin < containers.length; begin += BATCH) {
    const some = containers.slice(begin, begin + BATCH)
    const texts = await os.files.readSmall(some.flatMap(({ cgroupPath }) => files(cgroupPath)))
    for (const [index, { id, record }] of some.entries()) {
      const [cpu = '', memory = '', pids = ''] = texts.slice(3 * index)
      const { oomKills } = record
      figures.push({
        id,
        cpuSeconds: secondsIn(cpu),
        memoryBytes: numberIn(memory),
        pids: numberIn(pids),
        oomKills,
      })
    }
  }
  return figures
}

function filesV2(path: string): string[] {
  return ['cpu.stat', 'memory.current', 'pids.current'].map((name) => `${ROOT}${path}/${name}`)
}

function filesV1(path: string): string[] {
  const inHierarchy = (controller: string, name: string) => `${ROOT}/${controller}${path}/${name}`
  return [
    inHierarchy('cpuacct', 'cpuacct.usage'),
    inHierarchy('memory', 'memory.usage_in_bytes'),
    inHierarchy('pids', 'pids.current'),
  ]
}

/** From `usage_usec 1234` in cpu.stat (v2), or from the nanoseconds of cpuacct.usage (v1). */
function secondsIn(text: string): number | undefined {
  const microseconds = /^usage_usec (\d+)$/m.exec(text)?.[1]
  if (microseconds !== undefined) return Number(microseconds) / 1e6
  return /^\d+\n?$/.test(text) ? Number(text) / 1e9 : undefined
}

function numberIn(text: string): bigint | undefined {
  return /^\d+\n?$/.test(text) ? BigInt(text.trim()) : undefined
}
