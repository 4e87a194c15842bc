import { setTimeout as sleep } from 'node:timers/promises'
import { AgentError } from '../src/base/errors.ts'
import { type HotDisk, plugDisk, unplugDisk } from '../src/microvm/qmp/hot-plug.ts'
import { specKey } from '../src/microvm/spec-key.ts'
import { storageOf } from '../test/handlers/storage/storage-builder.ts'
import { container, RemoteProcess } from '../test/host/container-requests.ts'
import type { TestGuest } from '../test/vm/boot-guest.ts'
import { guestProgram } from '../test/vm/guest-program/compile.ts'
import { bind, bootPod, GUEST_PROC, type GuestPod, ROOT } from '../test/vm/guest-pod.ts'
import { hotDisk } from '../test/vm/hot-disk.ts'
import { median, report } from './figure.ts'

/**
 * In a microVM, from the kernel's uevent of a disk until a storage that waits for it is mounted, against a loop that
 * mounts on the same event; for one disk, and for 32 at once. A program in the guest takes the times of both.
 */
const ROUNDS = 15
const WARM_UP_ROUNDS = 3
/** A request is in its wait after so long. */
const IN_WAIT_MS = 400
const MOUNTED_WITHIN_MS = 3000
const STORAGE = '/run/kata-containers/sandbox/storage'
/** A PCI path where there is nothing: the request waits on when its disk is mounted, and starts no container. */
const NO_DISK = '1e'
const FIRST_SLOT = 8

const PLACES = Array.from({ length: 32 }, (_, number) => {
  const [slot, func] = [FIRST_SLOT + (number >> 3), number & 7]
  const source = `${slot.toString(16).padStart(2, '0')}.${func}/00`
  return { name: `disk-${number}`, port: specKey(`port-${number}`), slot, func, source }
})
type Place = (typeof PLACES)[number]

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

async function measure({ folder, guest: { vm } }: TestGuest, pod: GuestPod): Promise<void> {
  const { agent } = pod
  const prober = await startProber()
  const disks = new Map(PLACES.map((place) => [place, diskAt(place)]))
  const one = { ours: [] as number[], bare: [] as number[] }
  const first = PLACES.slice(0, 1)
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const [bare, ours] = [await mountBare(first), await attach(first)]
    if (round < WARM_UP_ROUNDS) continue
    one.bare.push(...bare)
    one.ours.push(...ours)
  }
  const value = median(one.ours)
  report({ figure: 'block uevent to mounted', unit: 'us', value, floor: median(one.bare), limit: 1.5 })
  const crowd = { bare: await mountBare(PLACES), ours: await attach(PLACES) }
  process.stderr.write(`${JSON.stringify(one)}\n${JSON.stringify(crowd)}\n`)
  report({ figure: 'the same, 32 at once', unit: 'us', value: median(crowd.ours), floor: value, limit: 3 })

  async function mountBare(places: readonly Place[]): Promise<readonly number[]> {
    await prober.begin(`mount ${places.length} /tmp`)
    await plug(places)
    const times = await prober.times(places.length)
    await unplug(places)
    return times
  }

  async function attach(places: readonly Place[]): Promise<readonly number[]> {
    await prober.begin(`watch ${places.length} /guest/proc/1/mountinfo`)
    const deadline = { timeoutMs: IN_WAIT_MS * places.length + MOUNTED_WITHIN_MS }
    const creating = places.map(({ name, source }) => {
      const storages = [blk(source, `${STORAGE}/${name}`), blk(NO_DISK, `${STORAGE}/${name}-none`)]
      return expectLate(agent.createContainer({ ...container(name, ROOT, ['true']), storages }, deadline))
    })
    await sleep(IN_WAIT_MS * places.length)
    await plug(places)
    const times = await prober.times(places.length)
    await Promise.all(creating)
    await unplug(places)
    return times
  }

  async function plug(places: readonly Place[]): Promise<void> {
    for (const place of places) await plugDisk(vm.qmp, diskOf(place), vm.gone)
  }

  async function unplug(places: readonly Place[]): Promise<void> {
    await Promise.all(places.map((place) => unplugDisk(vm.qmp, diskOf(place), vm.gone)))
  }

  function diskAt({ name, port }: Place): HotDisk {
    return hotDisk(folder, name, { bus: port, slot: 0 })
  }

  function diskOf(place: Place): HotDisk {
    const disk = disks.get(place)
    if (disk === undefined) throw new Error(`no disk for ${place.name}`)
    return disk
  }

  async function startProber() {
    const install = 'cat > /tmp/prober; chmod +x /tmp/prober; echo there; sleep 1000000'
    const capabilities = ['CAP_SYS_ADMIN']
    const { OCI, ...request } = container('prober', ROOT, ['sh', '-c', install], {
      process: { Capabilities: { Bounding: capabilities, Effective: capabilities, Permitted: capabilities } },
    })
    const Mounts = [...(OCI?.Mounts ?? []), GUEST_PROC, bind('/dev', '/guest/dev')]
    const Linux = { ...OCI?.Linux, Resources: { Devices: [{ Allow: true, Type: 'a', Access: 'rwm' }] } }
    await agent.createContainer({ ...request, OCI: { ...OCI, Mounts, Linux } })
    await agent.startContainer({ containerId: 'prober' })
    const init = new RemoteProcess(agent, 'prober')
    await init.write(await guestProgram('mount-prober'))
    await init.closeStdin()
    await init.readUntil('there')
    const running = await pod.add('prober', 'run', ['/tmp/prober'], {
      process: { Capabilities: { Bounding: capabilities, Effective: capabilities, Permitted: capabilities } },
    })
    return {
      /** Resolves when the program listens. */
      begin: async (command: string) => {
        await running.write(`${command}\n`)
        await running.readUntil('ready\n')
      },
      /** So many times, in microseconds. */
      times: async (count: number): Promise<readonly number[]> => {
        let text = ''
        while (text.split('\n').length <= count) {
          const chunk = await running.read()
          if (chunk.length === 0) throw new Error(`the prober ended: ${await running.readAll('stderr')}`)
          text += chunk.toString()
        }
        return text
          .trim()
          .split('\n')
          .map((line) => Number(line.split(' ')[1]))
      },
    }
  }
}
