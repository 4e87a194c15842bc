import { defaultConfig } from '../../../../src/agent/config/load-config.ts'
import { memAgentConfig } from '../../../../src/agent/handler-config.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import { FakeOs } from '../../fakes/fake-os.ts'

export const MEM_AGENT_DEFAULTS = memAgentConfig(defaultConfig())

const MIB = 2 ** 20

/** A cgroup of {@link memoryGuest}: its reclaimable pages and all its memory, in MiB. */
interface CgroupMemory {
  inactiveFileMib: number
  inactiveAnonMib?: number
  currentMib: number
}

export interface MemoryGuest {
  readonly os: FakeOs
  readonly cgroups: Record<string, CgroupMemory>
  /** `<cgroup> <value>` of each write to `memory.reclaim`, without the probe for `swappiness`. */
  readonly reclaims: string[]
  /** Stalls the tasks of a cgroup, or of the guest (`''`). */
  stall(cgroup: string, resource: 'memory' | 'io', us: number): Promise<void>
  show(cgroup: string): Promise<void>
  swapOn(): Promise<void>
}

/** The texts come from a guest with Linux 6.1. */
export async function memoryGuest(
  cgroups: Record<string, CgroupMemory> = {},
  { takesSwappiness = false } = {},
): Promise<MemoryGuest> {
  const os = new FakeOs()
  const reclaims: string[] = []
  const stalls = new Map<string, number>()
  const pressureFile = (cgroup: string, resource: string) =>
    cgroup === '' ? `/proc/pressure/${resource}` : `/sys/fs/cgroup${cgroup}/${resource}.pressure`
  const stall: MemoryGuest['stall'] = async (cgroup, resource, us) => {
    const file = pressureFile(cgroup, resource)
    stalls.set(file, (stalls.get(file) ?? 0) + us)
    const line = (kind: string) => `${kind} avg10=0.51 avg60=0.17 avg300=0.03 total=${stalls.get(file)}\n`
    await os.files.put(file, `${line('some')}${line('full')}`)
  }
  const show = async (path: string) => {
    const memory = cgroups[path]
    if (memory === undefined) return
    const { inactiveFileMib, inactiveAnonMib = 0, currentMib } = memory
    const stat = `anon 4096\ninactive_anon ${inactiveAnonMib * MIB}\ninactive_file ${inactiveFileMib * MIB}\n`
    await os.files.put(`/sys/fs/cgroup${path}/memory.stat`, stat)
    await os.files.put(`/sys/fs/cgroup${path}/memory.current`, `${currentMib * MIB}\n`)
  }
  for (const cgroup of ['', ...Object.keys(cgroups)]) {
    for (const resource of ['memory', 'io'] as const) await stall(cgroup, resource, 0)
    await os.files.put(`/sys/fs/cgroup${cgroup}/memory.reclaim`, '')
  }
  for (const path of Object.keys(cgroups)) await show(path)
  await os.files.put('/sys/fs/cgroup/cgroup.controllers', 'cpu io memory\n')
  await os.files.put('/proc/sys/vm/compact_memory', '')
  await os.files.put('/proc/self/cgroup', '0::/\n')
  const headings = 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n'
  await os.files.put('/proc/swaps', headings)
  await os.files.put('/proc/buddyinfo', BUDDYINFO)

  os.files.onWrite = async (file, value) => {
    const path = /^\/sys\/fs\/cgroup(.*)\/memory\.reclaim$/.exec(file)?.[1]
    if (path === undefined) return
    if (value.includes('swappiness') && !takesSwappiness) throw kernelError('write', file, 'EINVAL')
    const memory = cgroups[path]
    if (memory === undefined) return
    reclaims.push(`${path} ${value}`)
    const asked = Number(value.split(' ')[0]) / MIB
    const given = Math.min(asked, memory.inactiveFileMib)
    memory.inactiveFileMib -= given
    memory.currentMib -= given
    await show(path)
    if (given < asked) throw kernelError('write', file, 'EAGAIN')
  }
  return {
    ...{ os, cgroups, reclaims, stall, show },
    swapOn: () => os.files.put('/proc/swaps', `${headings}/dev/vdb partition\t16380\t\t0\t\t-2\n`),
  }
}

/** From a guest with 512 MiB. 1495 free pages are below order 9: 224 of zone DMA, 1271 of zone DMA32. */
export const BUDDYINFO = [
  'Node 0, zone      DMA      0      0      0      0      0      1      1      1      0      1      3 ',
  'Node 0, zone    DMA32     45     35     33     14      7      3      3      2      1      1     85 ',
  '',
].join('\n')
