import type { Files } from '../../../os/files/files.ts'
import { itemMetric, type Metric, namedNumbers } from './exposition.ts'

/** The names in /proc/meminfo, in its order, with their metric items. */
const MEMORY_ITEMS = `
  MemTotal=mem_total MemFree=mem_free MemAvailable=mem_available Buffers=buffers Cached=cached
  SwapCached=swap_cached Active=active Inactive=inactive Active(anon)=active_anon
  Inactive(anon)=inactive_anon Active(file)=active_file Inactive(file)=inactive_file
  Unevictable=unevictable Mlocked=mlocked HighTotal=high_total HighFree=high_free LowTotal=low_total
  LowFree=low_free MmapCopy=mmap_copy SwapTotal=swap_total SwapFree=swap_free Dirty=dirty
  Writeback=writeback AnonPages=anon_pages Mapped=mapped Shmem=shmem Slab=slab
  KReclaimable=k_reclaimable SReclaimable=s_reclaimable SUnreclaim=s_unreclaim KernelStack=kernel_stack
  PageTables=page_tables Quicklists=quicklists NFS_Unstable=nfs_unstable Bounce=bounce
  WritebackTmp=writeback_tmp CommitLimit=commit_limit Committed_AS=committed_as
  VmallocTotal=vmalloc_total VmallocUsed=vmalloc_used VmallocChunk=vmalloc_chunk Percpu=per_cpu
  HardwareCorrupted=hardware_corrupted AnonHugePages=anon_hugepages ShmemHugePages=shmem_hugepages
  ShmemPmdMapped=shmem_pmd_mapped CmaTotal=cma_total CmaFree=cma_free HugePages_Total=hugepages_total
  HugePages_Free=hugepages_free HugePages_Rsvd=hugepages_rsvd HugePages_Surp=hugepages_surp
  Hugepagesize=hugepagesize Hugetlb=hugetlb DirectMap4k=direct_map_4k DirectMap4M=direct_map_4M
  DirectMap2M=direct_map_2M DirectMap1G=direct_map_1G
`
  .trim()
  .split(/\s+/)
  .map((pair) => pair.split('='))

/** /proc/meminfo in bytes; the HugePages_ lines are counts. */
export async function memoryMetrics(files: Files): Promise<Metric[]> {
  const values = namedNumbers(await files.readText('/proc/meminfo'))
  const items = MEMORY_ITEMS.map(([name = '', item = '']) => {
    const value = values.get(name)
    return [item, value === undefined || name.startsWith('HugePages_') ? value : value * 1024n] as const
  })
  return [itemMetric('kata_guest_meminfo', items)]
}

export async function vmstatMetrics(files: Files): Promise<Metric[]> {
  const values = namedNumbers(await files.readText('/proc/vmstat'))
  return [itemMetric('kata_guest_vm_stat', values)]
}
