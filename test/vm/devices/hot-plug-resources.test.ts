import { execFileSync } from 'node:child_process'
import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { type SpecKey, specKey } from '../../../src/host/spec/spec-key.ts'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod, RemoteProcess } from '../../support/containers/pod.ts'
import { storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { growDisk, type HotDisk, plugCpu, plugDisk, plugMemory } from '../../support/vm/hot-plug/hot-plug.ts'

const skipped = cannotBoot() !== undefined
const MIB = 2 ** 20
const SHM = '/run/kata-containers/sandbox/shm'

/** The slots of the root ports, by plugged device. */
const PORTS = { swap: 9, blank: 10, ext4: 11, xfs: 12, memory: 13 } as const

describe.skipIf(skipped)('what is plugged into a running guest', () => {
  let guest: TestGuest
  let pod: Pod
  let blocks: ReturnType<typeof blocksOnline>

  beforeAll(async () => {
    const room = { cpus: 1, memoryMib: 512, memorySlots: 2 }
    const devices = Object.fromEntries(
      Object.values(PORTS).map((slot) => [portAt(slot), { kind: 'root-port', slot } as const]),
    )
    const extra = { devices, backends: {} }
    const memAgent = ['enable', 'memcg_disable=1', 'compact_disable=1'].map((key) => `agent.mem_agent_${key}`)
    const booted = await bootPod({ cpus: 1, room, extra, append: ['agent.log=debug', CRUN, ...memAgent] })
    guest = booted.guest
    pod = booted.pod
    blocks = blocksOnline(guest)
  })
  afterAll(async () => {
    await guest?.stop()
  })

  it('a CPU comes online, and is added to a container and to the cgroups above it', async () => {
    await pod.run('narrow', ['sleep', '1000'], { linux: { CgroupsPath: '/pod/narrow' } })
    const cgroups = bind('/sys/fs/cgroup', '/guest/cgroup')
    await pod.output('limiter', 'echo 0 > /guest/cgroup/containers/pod/cpuset.cpus', { mounts: [cgroups] })

    const onlining = pod.agent.onlineCPUMem({ nbCpus: 2, cpuOnly: true })
    await plugCpu(guest.guest.vm.qmp, specKey('cpu'), guest.guest.vm.gone)
    await onlining
    const counting = await pod.add('narrow', 'counting', ['nproc'])
    expect((await counting.readAll()).toString()).toBe('2\n')
    await expect(pod.agent.onlineCPUMem({ nbCpus: 3 })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'nb_cpus: 3, want at most 2 (the possible CPUs of this guest)',
    })
  })

  it('memory comes online by itself, and a volume in memory grows into it', async () => {
    const before = await totalMemoryKib()
    // Creating a container would recompute the limit, too.
    const look = 'while read line; do cat /guest/cgroup/containers/memory.max; done'
    const cgroups = bind('/sys/fs/cgroup', '/guest/cgroup')
    const looker = await pod.run('looker', ['sh', '-c', look], { mounts: [cgroups] })
    const limitMib = async () => {
      await looker.write('\n')
      return Number(await looker.readUntil('\n')) / MIB
    }
    const limitBefore = await limitMib()
    const { qmp, gone } = guest.guest.vm
    await plugMemory(qmp, { key: specKey('dimm'), sizeMib: 256 }, gone)
    await blocks.reach(2)
    expect((await totalMemoryKib()) - before).toBe(256 * 1024)
    await plugMemory(qmp, { key: specKey('memory'), sizeMib: 128, rootPort: portAt(PORTS.memory) }, gone)
    await blocks.reach(3)
    expect((await totalMemoryKib()) - before).toBe(384 * 1024)
    // The kernel keeps a part for itself, and the reserve of a guest of this size grows.
    while ((await limitMib()) - limitBefore < 0.85 * 384);
    await pod.remove('looker')
    await pod.agent.onlineCPUMem({ nbCpus: 0 })

    const shm = (options: string[]) => storageOf({ source: 'shm', mountPoint: SHM, options })
    await pod.create('shm', ['true'], { storages: [shm(['size=64m'])] })
    await pod.agent.updateEphemeralMounts({ storages: [shm(['remount', 'size=300m'])] })
    expect(await bytesOf(SHM)).toBe(BigInt(300 * MIB))
    const written = pod.output(
      'writer',
      'dd if=/dev/zero of=/shm/file bs=1M count=80 2> /dev/null; stat -c %s /shm/file',
      {
        mounts: [bind(SHM, '/shm')],
      },
    )
    expect(await written).toBe(`${80 * MIB}\n`)
  })

  it('GetGuestDetails returns the size of memory blocks, and that the kernel needs no probing', async () => {
    const details = await pod.agent.getGuestDetails({ memBlockSize: true, memHotplugProbe: true })
    expect(details).toMatchObject({ memBlockSizeBytes: BigInt(128 * MIB), supportMemHotplugProbe: false })
    await expect(pod.agent.memHotplugByProbe({ memHotplugProbeAddr: [0n] })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
    })
  })

  it('a disk becomes swap by its PCI path, and is refused without a swap signature', async () => {
    const adding = pod.agent.addSwap({ PCIPath: [PORTS.swap, 0] })
    const prepare = (path: string) => execFileSync('/sbin/mkswap', [path], { stdio: 'ignore' })
    await plug('swap', { mib: 16, prepare })
    await adding
    await pod.agent.addSwap({ PCIPath: [PORTS.swap, 0] })
    const swaps = await pod.output('swaps', 'cat /guest/proc/swaps', { mounts: [GUEST_PROC] })
    const [, ...lines] = swaps.trim().split('\n')
    expect(lines).toEqual([expect.stringMatching(/^\/dev\/vd[a-z]\s+partition\s+16380\s/)])

    await plug('blank', { mib: 16, prepare: () => {} })
    await expect(pod.agent.addSwap({ PCIPath: [PORTS.blank, 0] })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(
        /no swap signature, want one made by mkswap: swapon \/dev\/vd[a-z]: EINVAL$/,
      ),
    })
  })

  it('swap takes the memory of an idle container, once the mem-agent may swap', async () => {
    const hold = 'text=$(head -c 6000000 /dev/zero | tr "\\0" x); echo held; read line'
    const init = await pod.run('holder', ['sh', '-c', hold])
    await init.readUntil('held')
    const quick = { disabled: false, periodSecs: 1n, evictionRunAgingCountMin: 1n }
    await pod.agent.memAgentMemcgSet(quick)
    await consoleLine(guest, /"memory (not )?reclaimed".*"holder"/)
    expect(await swappedBytes('holder')).toBe(0n)
    await pod.agent.memAgentMemcgSet({ swap: true })
    await consoleLine(guest, /"memory reclaimed".*"holder"/)
    await pod.agent.memAgentMemcgSet({ disabled: true })
    expect(await swappedBytes('holder')).toBeGreaterThan(4n << 20n)
    await pod.remove('holder')
  })

  it.each([
    ['ext4', 32],
    ['xfs', 300],
  ] as const)('a volume of %s grows with its disk while a container writes to it', async (type, mib) => {
    const disk = await plug(type, {
      mib,
      prepare: (path) => execFileSync(`/sbin/mkfs.${type}`, ['-q', path]),
    })
    const mountPoint = `/run/kata-containers/sandbox/storage/${type}`
    const source = `${PORTS[type].toString(16).padStart(2, '0')}/00`
    const writer = await writerOn(storageOf({ driver: 'blk', source, fstype: type, mountPoint }))
    await writer.readUntil('1\n')

    const wanted = BigInt(2 * mib * MIB)
    const growing = pod.agent.resizeVolume({ volumeGuestPath: mountPoint, size: wanted })
    await growDisk(guest.guest.vm.qmp, disk, Number(wanted), guest.guest.vm.gone)
    await growing
    expect(await bytesOf(mountPoint)).toBeGreaterThan((wanted * 3n) / 4n)
    await pod.agent.resizeVolume({ volumeGuestPath: mountPoint, size: wanted })
    await writer.readUntil('\n')
    await writer.signal(SIGKILL)
    expect((await writer.readAll('stderr')).toString()).toBe('')
    expect(await writer.wait()).toBe(128 + SIGKILL)
  })

  it('takes the time and random bytes of the host', async () => {
    const clock = () => pod.output('clock', 'date +%s')
    await pod.agent.setGuestDateTime({ Sec: 2_000_000_000n, Usec: 1n })
    const elapsed = Number(await clock()) - 2_000_000_000
    expect([elapsed >= 0, elapsed < 600]).toEqual([true, true])
    await pod.agent.reseedRandomDev({ data: Buffer.alloc(512, 7) })
    // The kernel refuses a time of day that is smaller than its uptime.
    await expect(pod.agent.setGuestDateTime({ Sec: 0n, Usec: 0n })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'set the time to 0 s: EINVAL',
    })
  })

  async function writerOn(storage: ReturnType<typeof storageOf>): Promise<RemoteProcess> {
    const id = `writer-${storage.fstype}`
    const script = 'n=0; while :; do n=$((n+1)); echo $n >> /vol/file || exit 1; sync; echo $n; done'
    return pod.run(id, ['sh', '-c', script], {
      mounts: [bind(storage.mountPoint, '/vol')],
      storages: [storage],
    })
  }

  async function plug(
    name: keyof typeof PORTS,
    file: { readonly mib: number; readonly prepare: (path: string) => void },
  ): Promise<HotDisk> {
    const path = join(guest.folder, `${name}.img`)
    writeFileSync(path, '')
    truncateSync(path, file.mib * MIB)
    file.prepare(path)
    const disk: HotDisk = {
      key: specKey(name),
      device: { kind: 'disk', slot: 0, serial: name, backend: specKey(`${name}-file`) },
      backend: { kind: 'file', path, access: 'read-write' },
      bus: portAt(PORTS[name]),
    }
    await plugDisk(guest.guest.vm.qmp, disk, guest.guest.vm.gone)
    return disk
  }

  async function swappedBytes(id: string): Promise<bigint> {
    const cgroups = bind('/sys/fs/cgroup', '/guest/cgroup')
    return BigInt(
      await pod.output('swapped', `cat /guest/cgroup/containers/${id}/memory.swap.current`, {
        mounts: [cgroups],
      }),
    )
  }

  async function totalMemoryKib(): Promise<number> {
    const text = await pod.output('meminfo', 'cat /guest/proc/meminfo', { mounts: [GUEST_PROC] })
    return Number(/^MemTotal: +(\d+) kB$/m.exec(text)?.[1])
  }

  async function bytesOf(volumeGuestPath: string): Promise<bigint> {
    const { usage } = await pod.agent.getVolumeStats({ volumeGuestPath })
    return usage[0]?.total ?? 0n
  }
})

function portAt(slot: number): SpecKey {
  return specKey(`port-${slot}`)
}

function blocksOnline({ guest: { vm } }: TestGuest) {
  let count = 0
  let changed = Promise.withResolvers<void>()
  vm.console.onLine((line) => {
    if (!/"memory online".*memory\/memory[0-9]+/.test(line)) return
    count += 1
    changed.resolve()
    changed = Promise.withResolvers()
  })
  return {
    async reach(wanted: number): Promise<void> {
      while (count < wanted) await changed.promise
    },
  }
}
