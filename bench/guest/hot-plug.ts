import { setTimeout as sleep } from 'node:timers/promises'
import { AgentError } from '../../src/base/errors.ts'
import { specKey } from '../../src/host/spec/spec-key.ts'
import { createContainerRequest } from '../../test/support/containers/container-requests.ts'
import type { Pod } from '../../test/support/containers/pod.ts'
import { storageOf } from '../../test/support/handlers/storage/storage-builder.ts'
import type { TestGuest } from '../../test/support/vm/boot-guest.ts'
import { bootPod, ROOT } from '../../test/support/vm/guest-pod.ts'
import { hotDisk } from '../../test/support/vm/hot-plug/hot-disk.ts'
import { plugDisk, unplugDisk } from '../../test/support/vm/hot-plug/hot-plug.ts'
import { median, report } from '../support/figure.ts'
import { startMountProber } from '../support/mount-prober.ts'

/**
 * In a microVM: the time from the kernel's uevent of a disk until the storage that waits for it is mounted, against a loop
 * that mounts on the same event. A program in the guest measures both, for one disk and for 32 at once.
 */
const ROUNDS = { one: 31, crowd: 5 }
const WARM_UP_ROUNDS = 3
/**
 * `inWaitMs`: after this time all requests wait for their disk. The kernel rescans 1, 3, 7 and 15 s after the start of
 * a wait, which must not happen during the measurement; 32 requests need 3 s to start.
 */
const ONE = { inWaitMs: 400, timeoutMs: 1500 }
const CROWD = { inWaitMs: 11_000, timeoutMs: 20_000 }
const STORAGE = '/run/kata-containers/sandbox/storage'
const NO_DISK = '1e'
/** Each request waits for this absent disk after its own disk, so that no container starts. */
const HOLD = blk(NO_DISK, `${STORAGE}/hold`)

const FIRST_SLOT = 8

const PLACES = Array.from({ length: 32 }, (_, number) => {
  const [slot, func] = [FIRST_SLOT + (number >> 3), number & 7]
  const source = `${slot.toString(16).padStart(2, '0')}.${func}/00`
  return { name: `disk-${number}`, port: specKey(`port-${number}`), slot, func, source }
})

const ports = PLACES.map(({ port, slot, func }) => [port, { kind: 'root-port', slot, func } as const])
const { guest, pod } = await bootPod({
  memoryMib: 1024,
  append: ['agent.hotplug_timeout=60', 'agent.runtime=crun'],
  extra: { devices: Object.fromEntries(ports), backends: {} },
})
try {
  await measure(guest, pod)
} finally {
  await guest.stop()
}

function blk(source: string, mountPoint: string) {
  return storageOf({ driver: 'blk', source, fstype: 'ext4', mountPoint })
}

async function expectLate(call: Promise<unknown>): Promise<void> {
  await call.then(
    () => {
      throw new Error('a container was created without its disk')
    },
    (error: unknown) => {
      if (!(error instanceof AgentError && error.code === 'DEADLINE_EXCEEDED')) throw error
    },
  )
}

async function measure({ folder, guest: { vm } }: TestGuest, pod: Pod): Promise<void> {
  const prober = await startMountProber(pod)
  const disks = PLACES.map((place) => ({
    ...place,
    disk: hotDisk(folder, place.name, { bus: place.port, slot: 0 }),
  }))
  const first = disks.slice(0, 1)
  const one = { agent: [] as number[], bare: [] as number[] }
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS.one; round++) {
    const [bare, agent] = [await mountBare(first), await attach(first)]
    if (round < WARM_UP_ROUNDS) continue
    one.bare.push(...bare)
    one.agent.push(...agent)
  }
  const value = median(one.agent)
  report({ figure: 'block uevent to mounted', unit: 'us', value, floor: median(one.bare), limit: 1.5 })
  const crowd = { agent: [] as number[], bare: [] as number[] }
  for (let round = 0; round < ROUNDS.crowd; round++) {
    crowd.bare.push(median(await mountBare(disks)))
    crowd.agent.push(median(await attach(disks)))
  }
  const phases = { 'bare loop': median(crowd.bare) }
  report({
    figure: 'the same, 32 at once',
    unit: 'us',
    value: median(crowd.agent),
    floor: value,
    limit: 3,
    phases,
  })

  async function mountBare(plugged: typeof disks): Promise<readonly number[]> {
    await prober.begin(`mount ${plugged.length} /tmp`)
    for (const { disk } of plugged) await plugDisk(vm.qmp, disk, vm.gone)
    const times = await prober.times(plugged.length)
    await unplugAll(plugged)
    return times
  }

  async function attach(plugged: typeof disks): Promise<readonly number[]> {
    await prober.begin(`watch ${plugged.length} /guest/proc/1/root${STORAGE}/disk-`)
    const { inWaitMs, timeoutMs } = plugged.length > 1 ? CROWD : ONE
    const creating = plugged.map(({ name, source }) => {
      const storages = [blk(source, `${STORAGE}/${name}`), HOLD]
      const request = createContainerRequest(name, ROOT, ['true'], { storages })
      return expectLate(pod.agent.createContainer(request, { timeoutMs }))
    })
    await sleep(inWaitMs)
    for (const { disk } of plugged) await plugDisk(vm.qmp, disk, vm.gone)
    const times = await prober.times(plugged.length)
    await Promise.all(creating)
    await unplugAll(plugged)
    return times
  }

  async function unplugAll(plugged: typeof disks): Promise<void> {
    await Promise.all(plugged.map(({ disk }) => unplugDisk(vm.qmp, disk, vm.gone)))
  }
}
