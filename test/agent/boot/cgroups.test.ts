import { describe, expect, it } from 'vitest'
import { enabledV1Controllers, setUpCgroups } from '../../../src/agent/boot/cgroups.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

const NEEDED = ['cpuset', 'cpu', 'memory', 'devices', 'freezer', 'pids']
const PROC_CGROUPS = `#subsys_name\thierarchy\tnum_cgroups\tenabled
${NEEDED.map((name) => `${name}\t0\t1\t1\n`).join('')}misc\t0\t1\t1
hugetlb\t0\t1\t0
`
const AGENT = '/sys/fs/cgroup/agent'
const SUBTREE = '/sys/fs/cgroup/cgroup.subtree_control'

describe('setUpCgroups', () => {
  it('mounts v2 by default and enables every controller', async () => {
    const { os, context } = await bareGuest()
    const written = recordWrites(os.files, SUBTREE)
    await expect(setUpCgroups(context)).resolves.toBe('done')
    expect(os.mounts.requests).toEqual([
      {
        source: 'cgroup2',
        target: '/sys/fs/cgroup',
        type: 'cgroup2',
        flags: ['nosuid', 'nodev', 'noexec', 'relatime'],
        data: 'nsdelegate',
      },
    ])
    expect(written).toEqual(['+cpuset +cpu +memory +pids'])
  })

  it('moves vminit, the agent and the broker into a cgroup that keeps its memory, at most an eighth, on v2', async () => {
    const { os, context } = await bareGuest({ memoryReserve: 32 })
    await os.files.put('/proc/meminfo', `MemTotal:         ${128 * 1024} kB\n`)
    for (const [pid, parent] of [
      [2, 0],
      [71, 2],
      [72, 1],
    ]) {
      await os.files.makeDirectories(`/proc/${pid}`)
      await os.files.write(`/proc/${pid}/stat`, `${pid} (a b) S ${parent} 0`)
    }
    const written: string[] = []
    os.files.onWrite = (path, data) => {
      if (path.startsWith(`${AGENT}/`)) written.push(`${path.slice(AGENT.length + 1)} ${data}`)
    }
    await setUpCgroups(context)
    const moves = ['cgroup.procs 1', `cgroup.procs ${os.system.pid}`, 'cgroup.procs 72']
    expect(written).toEqual([`memory.min ${16 * 2 ** 20}`, 'cpu.weight 1000', ...moves])
  })

  it('continues without a controller for that cgroup', async () => {
    const { os, context, lines } = await bareGuest()
    os.files.onWrite = (path) => {
      if (path === `${AGENT}/memory.min`) throw kernelError('write', path, 'EACCES')
    }
    await setUpCgroups(context)
    const error = `write ${AGENT}/memory.min: EACCES`
    expect(lines.map(({ fields }) => fields)).toEqual([{ file: 'memory.min', error }])
    expect(await os.files.readText(`${AGENT}/cgroup.procs`)).toBe(`${os.system.pid}`)
  })

  it('enables the other controllers when one is refused', async () => {
    const { os, context, lines } = await bareGuest()
    const written = recordWrites(os.files, SUBTREE, '+cpu')
    await setUpCgroups(context)
    expect(written).toEqual(['+cpuset', '+memory', '+pids'])
    expect(lines).toContainEqual(
      expect.objectContaining({ fields: { controllers: 'cpu', error: `write ${SUBTREE}: EINVAL` } }),
    )
  })

  it('mounts v1 on request when the kernel has it', async () => {
    const { os, context } = await bareGuest({ unifiedCgroupHierarchy: false })
    await os.files.put('/proc/cgroups', PROC_CGROUPS)
    await setUpCgroups(context)
    const calls = os.mounts.requests.map(({ target, type, flags, data }) => [target, type, flags, data])
    const flags = ['nosuid', 'nodev', 'noexec']
    expect(calls).toEqual([
      ['/sys/fs/cgroup', 'cgroup', flags, 'devices,cpu,cpuset,memory,pids,freezer'],
      ['/sys/fs/cgroup', 'tmpfs', flags, 'mode=755'],
      ...['cpu', 'cpuset', 'memory', 'devices', 'freezer', 'pids'].map((name) => [
        `/sys/fs/cgroup/${name}`,
        'cgroup',
        [...flags, 'relatime'],
        name,
      ]),
      ['/sys/fs/cgroup', 'tmpfs', [...flags, 'remount', 'ro'], 'mode=755'],
    ])
  })

  it('enables hierarchical memory accounting of v1 when the kernel has the setting', async () => {
    const { os, context } = await bareGuest({ unifiedCgroupHierarchy: false })
    await os.files.put('/proc/cgroups', PROC_CGROUPS)
    await os.files.put('/sys/fs/cgroup/memory/memory.use_hierarchy', '0')
    await setUpCgroups(context)
    expect(await os.files.readText('/sys/fs/cgroup/memory/memory.use_hierarchy')).toBe('1')
  })

  it.each([
    ['the kernel has no v1', '#subsys_name\thierarchy\tnum_cgroups\tenabled\n', '', 'devices cpu cpuset'],
    ['the kernel has not all of v1', PROC_CGROUPS.replace(/^(cpuset|memory).*\n/gm, ''), '', 'cpuset memory'],
    ['the command line disables one', PROC_CGROUPS.replace('devices\t0\t1\t1', ''), '', 'devices'],
    ['the command line keeps some for v2', PROC_CGROUPS, 'pids,memory', 'memory pids'],
  ])('takes v2 with a warning when %s', async (_, procCgroups, cgroupNoV1, controllers) => {
    const { os, context, lines } = await bareGuest({ unifiedCgroupHierarchy: false, cgroupNoV1 })
    await os.files.put('/proc/cgroups', procCgroups)
    await setUpCgroups(context)
    expect(os.mounts.requests.map(({ type }) => type)).toEqual(['cgroup2'])
    expect(lines).toContainEqual(
      expect.objectContaining({
        message: 'cgroup v1 requested, but it lacks controllers: using v2',
        fields: expect.objectContaining({ controllers: expect.stringMatching(`^${controllers}`) }),
      }),
    )
  })

  it('uses v2 with a warning when the kernel mounts the named controllers only as v2', async () => {
    const { os, context, lines } = await bareGuest({ unifiedCgroupHierarchy: false })
    await os.files.put('/proc/cgroups', PROC_CGROUPS)
    const asked: string[] = []
    os.mounts.failWith = (call) => (call === 'mount' && asked.push(call) === 1 ? 'EINVAL' : undefined)
    await setUpCgroups(context)
    expect(os.mounts.requests.map(({ type }) => type)).toEqual(['cgroup2'])
    const controllers = 'one of devices cpu cpuset memory pids freezer'
    const because = 'mount /sys/fs/cgroup: EINVAL'
    expect(lines).toContainEqual(expect.objectContaining({ fields: { controllers, because } }))
  })

  it('stays with v2 when the kernel was started without v1', async () => {
    const { os, context } = await bareGuest({ unifiedCgroupHierarchy: false, cgroupNoV1: 'all' })
    await setUpCgroups(context)
    expect(os.mounts.requests.map(({ type }) => type)).toEqual(['cgroup2'])
  })
})

describe('enabledV1Controllers', () => {
  it('leaves out comments, disabled controllers and unknown ones', () => {
    expect(enabledV1Controllers(PROC_CGROUPS)).toEqual([
      'cpu',
      'cpuset',
      'memory',
      'devices',
      'freezer',
      'pids',
    ])
  })
})

type Files = Awaited<ReturnType<typeof bareGuest>>['os']['files']

/** Records the texts written to `path`; a write that contains `refused` fails. */
function recordWrites(files: Files, path: string, refused?: string): string[] {
  const written: string[] = []
  const write = files.write.bind(files)
  files.write = async (target, data, options) => {
    if (target !== path) return write(target, data, options)
    if (refused !== undefined && String(data).split(' ').includes(refused))
      throw new Error(`write ${path}: EINVAL`)
    written.push(String(data))
  }
  return written
}
