import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { qemuId, type SpecKey, specKey } from '../../../src/host/spec/spec-key.ts'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { storageOf } from '../../support/handlers/storage/storage-builder.ts'
import { CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod } from '../../support/vm/guest-pod.ts'
import { hotDisk } from '../../support/vm/hot-plug/hot-disk.ts'
import { type HotDisk, plugDisk, unplugDisk } from '../../support/vm/hot-plug/hot-plug.ts'

const STORAGE = '/run/kata-containers/sandbox/storage'
const BRIDGE = specKey('bridge')
const BRIDGE_PORT = specKey('bridge-port')
const BRIDGE_SLOT = 6
/** One root port for each disk: all functions of four slots. */
const FIRST_SLOT = 8
const CROWD = Array.from({ length: 32 }, (_, number) => {
  const [slot, func] = [FIRST_SLOT + (number >> 3), number & 7]
  const path = `${slot.toString(16).padStart(2, '0')}.${func}/00`
  return { name: `disk-${number}`, port: specKey(`port-${number}`), slot, func, path }
})

describe.skipIf(cannotBoot() !== undefined)('many places of a guest’s PCI buses', () => {
  let guest: TestGuest
  let pod: Pod

  beforeAll(async () => {
    const ports = CROWD.map(({ port, slot, func }) => [port, { kind: 'root-port', slot, func } as const])
    const devices = {
      ...Object.fromEntries(ports),
      [BRIDGE_PORT]: { kind: 'root-port', slot: BRIDGE_SLOT },
    }
    const append = [CRUN, 'agent.hotplug_timeout=60']
    const booted = await bootPod({ cpus: 2, memoryMib: 1024, extra: { devices, backends: {} }, append })
    guest = booted.guest
    pod = booted.pod
  })
  afterAll(async () => {
    await guest?.stop()
  })

  it('a disk behind a bridge in a root port is found when both are plugged in during the wait', async () => {
    const creating = createContainer('far', '06/00/03')
    const { qmp, gone } = guest.guest.vm
    const bridge = { driver: 'pcie-pci-bridge', id: qemuId(BRIDGE), bus: qemuId(BRIDGE_PORT), addr: '0x0' }
    await qmp.execute('device_add', bridge, gone)
    await plug('far', { bus: BRIDGE, slot: 3 })
    await creating
    expect(await names()).toEqual(['far'])
  })

  it('another one there is found without an event, which this kind of bridge does not send', async () => {
    const creating = createContainer('silent', '06/00/04')
    await plug('silent', { bus: BRIDGE, slot: 4 })
    await creating
    expect(await names()).toEqual(['far', 'silent'])
    for (const id of ['far', 'silent']) await pod.remove(id)
  })

  it('of 32 disks that are plugged in at once, each reaches the one container that waits for it', async () => {
    const creating = CROWD.map(({ name, path }) => createContainer(name, path))
    const disks = await Promise.all(CROWD.map(({ name, port }) => plug(name, { bus: port, slot: 0 })))
    await Promise.all(creating)
    expect(await names()).toEqual(CROWD.map(({ name }) => name))

    await Promise.all(CROWD.map(({ name }) => pod.remove(name)))
    expect(await names()).toEqual([])
    const { qmp, gone } = guest.guest.vm
    await Promise.all(disks.map((disk) => unplugDisk(qmp, disk, gone)))
    const left = await pod.output('left', 'cd /guest/sys/block; ls -d vd*', {
      mounts: [bind('/sys', '/guest/sys')],
    })
    expect(left).not.toMatch(/vd[e-z]/)
  })

  async function createContainer(id: string, source: string): Promise<void> {
    const storage = storageOf({ driver: 'blk', source, fstype: 'ext4', mountPoint: `${STORAGE}/${id}` })
    await pod.create(id, ['sleep', '1000'], { storages: [storage] })
  }

  async function plug(
    name: string,
    place: { readonly bus: SpecKey; readonly slot: number },
  ): Promise<HotDisk> {
    const disk = hotDisk(guest.folder, name, place)
    await plugDisk(guest.guest.vm.qmp, disk, guest.guest.vm.gone)
    return disk
  }

  /** Returns the names on the mounted disks; each disk is mounted at the path with its name. */
  async function names(): Promise<readonly string[]> {
    const script = `cd /kata/sandbox/storage 2> /dev/null || exit 0
      for each in *; do [ "$(cat $each/name)" = $each ] && echo $each; done | sort -V`
    const output = await pod.output('names', script, { mounts: [bind('/run/kata-containers', '/kata')] })
    return output.split('\n').filter((name) => name !== '')
  }
})
