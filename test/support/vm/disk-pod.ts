import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import { bind } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'
import { storageOf } from '../handlers/storage/storage-builder.ts'
import { CRUN, type TestGuest } from './boot-guest.ts'
import { bootPod } from './guest-pod.ts'
import { plugDisk } from './hot-plug/hot-plug.ts'

/** File systems by name, each on a disk behind a root port. */
const DISKS = [
  { name: 'ext4', slot: 9 },
  { name: 'xfs', slot: 10 },
] as const

export interface DiskPod {
  readonly guest: TestGuest
  readonly pod: Pod
  readonly lifecycle: ServiceClient<typeof LifecycleDefinition>
  /** By the name of the file system: the image of its disk. */
  readonly images: Readonly<Record<'ext4' | 'xfs', string>>
  /** For a container with both disks, at `/ext4` and `/xfs`. */
  readonly onDisks: ReturnType<typeof onDisks>
}

/** Boots a guest with two empty disks for its containers. */
export async function bootDiskPod(): Promise<DiskPod> {
  const devices = Object.fromEntries(
    DISKS.map(({ name, slot }) => [specKey(`${name}-port`), { kind: 'root-port', slot }] as const),
  )
  const { guest, pod } = await bootPod({ extra: { devices, backends: {} }, append: [CRUN] })
  const images = { ext4: join(guest.folder, 'ext4.img'), xfs: join(guest.folder, 'xfs.img') }
  for (const { name } of DISKS) {
    const path = images[name]
    writeFileSync(path, '')
    // xfs has no smaller file systems.
    execFileSync('truncate', ['-s', '320M', path])
    execFileSync(`mkfs.${name}`, ['-q', path])
    const device = { kind: 'disk', slot: 0, serial: name, backend: specKey(`${name}-file`) } as const
    const backend = { kind: 'file', path, access: 'read-write' } as const
    const disk = { key: specKey(name), device, backend, bus: specKey(`${name}-port`) }
    await plugDisk(guest.guest.vm.qmp, disk, guest.guest.vm.gone)
  }
  const lifecycle = clientFor(LifecycleDefinition, guest.guest.connection)
  return { guest, pod, lifecycle, images, onDisks: onDisks() }
}

function onDisks() {
  const mountPoint = (name: string) => `/run/kata-containers/sandbox/storage/${name}`
  return {
    storages: DISKS.map(({ name, slot }) =>
      storageOf({
        ...{ driver: 'blk', source: `0${slot.toString(16)}/00`, fstype: name },
        mountPoint: mountPoint(name),
      }),
    ),
    mounts: DISKS.map(({ name }) => bind(mountPoint(name), `/${name}`)),
  }
}
