import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { METRICS } from '../../../src/handlers/guest/metrics/table.ts'
import { type AgentPod, inNamespaceOf, startPod } from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type ParsedFamily, parseMetrics } from './prometheus-client.ts'
import { checkMetrics } from './promtool.ts'

const MIB = 2 ** 20
const CGROUPS = '/sys/fs/cgroup'
const isV1 = existsSync(`${CGROUPS}/cpuset`)

describe('calls about the guest', () => {
  let pod: AgentPod
  let folder: string
  const cleanUps: (() => void)[] = []

  beforeAll(async () => {
    folder = temporaryFolder()
    pod = await startPod()
  })
  afterAll(async () => {
    await pod.stop()
    for (const cleanUp of cleanUps.reverse()) cleanUp()
  })

  it('GetVolumeStats counts what is on a volume of the agent’s mount namespace', async () => {
    mkdirSync(pod.started.inside('/run/volume'))
    inNamespaceOf(pod.started, 'mount', '-t', 'tmpfs', '-o', 'size=1m,nr_inodes=64', 'tmpfs', '/run/volume')
    writeFileSync(pod.started.inside('/run/volume/file'), Buffer.alloc(8192))
    await expect(pod.agent.getVolumeStats({ volumeGuestPath: '/run/volume' })).resolves.toEqual({
      usage: [
        { unit: 1, total: BigInt(MIB), used: 8192n, available: BigInt(MIB) - 8192n },
        { unit: 2, total: 64n, used: 2n, available: 62n },
      ],
      volumeCondition: { abnormal: false, message: 'OK' },
    })
  })

  it('ResizeVolume grows a volume while it is mounted, and shrinks none', async () => {
    const device = mountXfs('/run/xfs')
    truncateSync(join(folder, 'disk.img'), 600 * MIB)
    execFileSync('losetup', ['--set-capacity', device])
    await pod.agent.resizeVolume({ volumeGuestPath: '/run/xfs', size: BigInt(600 * MIB) })
    const { usage } = await pod.agent.getVolumeStats({ volumeGuestPath: '/run/xfs' })
    expect(usage[0]?.total).toBeGreaterThan(500n * BigInt(MIB))
    const shrinking = pod.agent.resizeVolume({ volumeGuestPath: '/run/xfs', size: BigInt(300 * MIB) })
    await expect(shrinking).rejects.toMatchObject({ code: 'OUT_OF_RANGE' })
    // Callers wait 3 s, as long as the agent waits for other devices.
    const tooLarge = pod.agent.resizeVolume({ volumeGuestPath: '/run/xfs', size: BigInt(900 * MIB) })
    await expect(tooLarge).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(
        /^Timeout after 2s waiting for uevent of \/dev\/loop.* with 943718400 bytes: no more than 629145600 bytes/,
      ),
    })
  })

  it('OnlineCPUMem gives the online CPUs to containers and to the cgroups above them', async () => {
    await pod.create('narrow', ['sleep', '1000'], { linux: { CgroupsPath: '/resources-pod/narrow' } })
    if (isV1) writeFileSync(cpuset('narrow/cpuset.cpus'), '0')
    writeFileSync(cpuset('cpuset.cpus'), '0')
    expect(effectiveCpus()).toBe('0')

    const online = readFileSync('/sys/devices/system/cpu/online', 'utf8').trim()
    await pod.agent.onlineCPUMem({ nbCpus: 1, cpuOnly: true })
    expect(effectiveCpus()).toBe(online)
    await pod.remove('narrow')
  })

  it('AddSwapPath reports the kernel’s error for a file that is no swap space', async () => {
    await expect(pod.agent.addSwapPath({ path: '/run/volume/file' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message:
        'swap /run/volume/file: no swap signature, want one made by mkswap: swapon /run/volume/file: EINVAL',
    })
    await expect(pod.agent.addSwapPath({ path: '/run/none' })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'swapon /run/none: ENOENT',
    })
  })

  it('GetMetrics reports figures of the agent and of the machine in Prometheus’ format', async () => {
    await pod.create('counted', ['sleep', '1000'])
    await pod.agent.startContainer({ containerId: 'counted' })
    const { metrics } = await pod.agent.getMetrics({})
    // Kata's agent has chosen these names and types.
    const remarks = (await checkMetrics(metrics)).filter((line) => !line.startsWith('kata_'))
    expect(remarks).toEqual([])
    const names = [...metrics.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name)
    // Nothing has failed, and no uevents are meant for this agent.
    expect(Object.keys(METRICS).filter((name) => !names.includes(name))).toEqual([])
    expect(parseMetrics(metrics).map(described)).toEqual(expectedIn(metrics))
    expect(metrics).toMatch(/^microvm_agent_rpc_in_flight\{method="grpc.AgentService\/GetMetrics"\} 1$/m)
    expect(metrics).toMatch(
      /^microvm_agent_rpc_duration_seconds_count\{method="grpc.AgentService\/StartContainer"\} [1-9]/m,
    )
    expect(metrics).toMatch(/^microvm_agent_containers\{state="running"\} [1-9]/m)
    // The threads of the runtime that became this program count until the kernel has released them.
    expect(metrics).toMatch(/^microvm_container_pids\{container="counted"\} [1-9]\d?$/m)
    expect(
      Number(/^microvm_container_memory_bytes\{container="counted"\} (\d+)$/m.exec(metrics)?.[1]),
    ).toBeGreaterThan(0)
    expect(metrics).toMatch(/^microvm_container_cpu_seconds_total\{container="counted"\} [\d.e-]+$/m)
    await pod.remove('counted')
    const resident = readFileSync(`/proc/${pod.started.agentPid()}/status`, 'utf8')
    const rssKib = Number(/^VmRSS:\s+(\d+) kB$/m.exec(resident)?.[1])
    const told = Number(/^kata_agent_total_rss (\d+)$/m.exec(metrics)?.[1])
    expect(Math.abs(told / 1024 / rssKib - 1)).toBeLessThan(0.2)
  })

  function cpuset(path: string): string {
    return join(CGROUPS, isV1 ? 'cpuset' : '', pod.started.containersCgroup, 'resources-pod', path)
  }

  function effectiveCpus(): string {
    const file = isV1 ? 'cpuset.effective_cpus' : 'cpuset.cpus.effective'
    return readFileSync(cpuset(`narrow/${file}`), 'utf8').trim()
  }

  /** Mounts a 300 MiB disk with XFS in the agent's mount namespace. Returns its device node. */
  function mountXfs(mountPoint: string): string {
    const file = join(folder, 'disk.img')
    writeFileSync(file, '')
    truncateSync(file, 300 * MIB)
    execFileSync('/sbin/mkfs.xfs', ['-q', file])
    const device = execFileSync('losetup', ['--find', '--show', file], { encoding: 'utf8' }).trim()
    cleanUps.push(() => execFileSync('losetup', ['--detach', device]))
    mkdirSync(pod.started.inside(mountPoint))
    inNamespaceOf(pod.started, 'mount', device, mountPoint)
    return device
  }
})

/** The expected families of the table of metrics, in the words of Prometheus' Python client. */
function expectedIn(metrics: string) {
  return Object.entries(METRICS).map(([name, { type, help, labels }]) => ({
    name: type === 'counter' ? name.replace(/_total$/, '') : name,
    type: type === 'untyped' ? 'unknown' : type,
    help,
    labels: labels.toSorted(),
    samples: [...metrics.matchAll(new RegExp(`^${name}${PARTS[type] ?? ''}[ {]`, 'gm'))].length,
  }))
}

const PARTS: Readonly<Record<string, string>> = { histogram: '(?:_bucket|_sum|_count)' }

function described({ name, type, help, samples }: ParsedFamily) {
  const labels = new Set(samples.flatMap((sample) => Object.keys(sample.labels)))
  labels.delete('le')
  return { name, type, help, labels: [...labels].sort(), samples: samples.length }
}
