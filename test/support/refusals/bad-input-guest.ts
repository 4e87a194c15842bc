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

/** Requests about the guest itself that the agent must refuse without any other effect. */
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
  {
    ...{ rpc: 'ReseedRandomDev', what: 'no bytes', code: 'INVALID_ARGUMENT', names: 'missing entropy data' },
    call: (agent) => agent.reseedRandomDev({}),
  },
]
