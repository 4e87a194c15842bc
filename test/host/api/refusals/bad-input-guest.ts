import type { MemAgentCompactConfig, MemAgentMemcgConfig } from '../../../../src/gen/agent.ts'
import type { BadInput } from './bad-input.ts'

const INT64_MAX = 2n ** 63n - 1n

const swap = (what: string, PCIPath: readonly number[], names: string): BadInput => ({
  ...{ rpc: 'AddSwap', what, code: 'INVALID_ARGUMENT', names },
  call: (agent) => agent.addSwap({ PCIPath: [...PCIPath] }),
})

const swapPath = (path: string): BadInput => ({
  ...{ rpc: 'AddSwapPath', what: `the path '${path}'`, code: 'INVALID_ARGUMENT', names: `path "${path}": ` },
  call: (agent) => agent.addSwapPath({ path }),
})

const relativePaths = ['', 'volume', '../volume'].flatMap((volumeGuestPath): BadInput[] => {
  const expected = { code: 'INVALID_ARGUMENT', names: `volume_guest_path "${volumeGuestPath}": ` } as const
  const what = `the path '${volumeGuestPath}'`
  return [
    { rpc: 'GetVolumeStats', what, ...expected, call: (agent) => agent.getVolumeStats({ volumeGuestPath }) },
    {
      ...{ rpc: 'ResizeVolume', what, ...expected },
      call: (agent) => agent.resizeVolume({ volumeGuestPath, size: 1n }),
    },
  ]
})

const time = (what: string, Sec: bigint, Usec: bigint, names: string): BadInput => ({
  ...{ rpc: 'SetGuestDateTime', what, code: 'INVALID_ARGUMENT', names },
  call: (agent) => agent.setGuestDateTime({ Sec, Usec }),
})

const hostname = (what: string, name: string, names: string): BadInput => ({
  ...{ rpc: 'CreateSandbox', what, code: 'INVALID_ARGUMENT', names },
  call: (agent) => agent.createSandbox({ sandboxId: 'second', hostname: name }),
})

const reclaim = (what: string, request: MemAgentMemcgConfig, names: string): BadInput => ({
  ...{ rpc: 'MemAgentMemcgSet', what, code: 'INVALID_ARGUMENT', names },
  call: (agent) => agent.memAgentMemcgSet(request),
})

const compaction = (what: string, request: MemAgentCompactConfig, names: string): BadInput => ({
  ...{ rpc: 'MemAgentCompactSet', what, code: 'INVALID_ARGUMENT', names },
  call: (agent) => agent.memAgentCompactSet(request),
})

export const GUEST_INPUT: readonly BadInput[] = [
  {
    ...{ rpc: 'OnlineCPUMem', what: 'more CPUs than there can be', code: 'INVALID_ARGUMENT' },
    names: 'nb_cpus: 4294967295, want at most ',
    call: (agent) => agent.onlineCPUMem({ nbCpus: 4_294_967_295, cpuOnly: true }),
  },
  swap('no slot', [], 'PCIPath is empty'),
  swap('a slot that no bus has', [2, 32], 'slot 32'),
  swap('the largest number', [4_294_967_295], 'slot 4294967295'),
  ...['', 'dev/vdb'].map(swapPath),
  ...relativePaths,
  {
    ...{ rpc: 'GetVolumeStats', what: 'a path that is not there', code: 'NOT_FOUND' },
    names: '/run/none: does not exist',
    call: (agent) => agent.getVolumeStats({ volumeGuestPath: '/run/none' }),
  },
  {
    ...{ rpc: 'ResizeVolume', what: 'a path that is not there', code: 'NOT_FOUND' },
    names: '/run/none: does not exist',
    call: (agent) => agent.resizeVolume({ volumeGuestPath: '/run/none', size: 1n }),
  },
  {
    ...{ rpc: 'ResizeVolume', what: 'a folder where nothing is mounted', code: 'INVALID_ARGUMENT' },
    names: '/etc: not a mount point',
    call: (agent) => agent.resizeVolume({ volumeGuestPath: '/etc', size: 1n }),
  },
  {
    ...{ rpc: 'ResizeVolume', what: 'a file system that cannot grow', code: 'UNIMPLEMENTED' },
    names: '/run: tmpfs cannot grow while mounted',
    call: (agent) => agent.resizeVolume({ volumeGuestPath: '/run', size: 2n ** 64n - 1n }),
  },
  hostname('a host name of 65 bytes', 'x'.repeat(65), 'hostname: 65 bytes long, want at most 64'),
  hostname('a host name with a NUL', 'a\0b', 'hostname: contains a NUL byte'),
  time('a time before 1970', -1n, 0n, 'Sec: -1, want 0 to '),
  time('a time that no number holds', INT64_MAX, 0n, `Sec: ${INT64_MAX}, want 0 to `),
  time('a second and more of microseconds', 1n, 1_000_000n, 'Usec: 1000000, want 0 to '),
  reclaim('too much swappiness', { swappinessMax: 201 }, 'swappiness_max: 201, want 0 to 200'),
  reclaim('no period', { periodSecs: 0n }, 'period_secs: 0, want 1 to '),
  reclaim('a period that no timer has', { periodSecs: 2n ** 64n - 1n }, 'period_secs: 18446744073709551615,'),
  reclaim('more than all pressure', { periodPsiPercentLimit: 101 }, 'period_psi_percent_limit: 101,'),
  reclaim('more than all pressure', { evictionPsiPercentLimit: 101 }, 'eviction_psi_percent_limit: 101,'),
  compaction('no period', { periodSecs: 0n }, 'period_secs: 0, want 1 to '),
  compaction('more than all pressure', { periodPsiPercentLimit: 101 }, 'period_psi_percent_limit: 101,'),
  compaction('more than all pressure', { compactPsiPercentLimit: 101 }, 'compact_psi_percent_limit: 101,'),
  compaction('a negative time', { compactSecMax: -1n }, 'compact_sec_max: -1, want 1 to '),
  compaction('blocks that no kernel has', { compactOrder: 11 }, 'compact_order: 11, want 0 to 10'),
  {
    ...{ rpc: 'ReseedRandomDev', what: 'no bytes', code: 'INVALID_ARGUMENT', names: 'missing entropy data' },
    call: (agent) => agent.reseedRandomDev({}),
  },
]
