import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Storage } from '../../../src/gen/agent.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import { qemuId, specKey } from '../../../src/host/spec/spec-key.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { bind, type ContainerOptions } from '../../support/containers/container-requests.ts'
import { type Pod, podOf, type RemoteProcess } from '../../support/containers/pod.ts'
import { realOs } from '../../support/os/real-os.ts'
import { guestProgram } from '../../support/programs/guest/guest-program.ts'
import {
  expectWholeVersions,
  publishFirst,
  READ_VERSIONS,
} from '../../support/programs/guest/volume-reader.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { plugDisk, plugMemory, unplugDisk } from '../../support/vm/hot-plug/hot-plug.ts'
import { programsOf } from '../../support/vm/microvm-process.ts'

const SHARED = '/run/kata-containers/shared/containers'
const SHARE = specKey('share')
const SCSI_PORT = specKey('scsi-port')
const DISK_PORT = specKey('disk-port')

describe.skipIf(cannotBoot() !== undefined)('storage drivers in a guest', () => {
  let folder: string
  let guest: TestGuest
  let pod: Pod

  beforeAll(async () => {
    folder = temporaryFolder()
    busyboxRoot(join(folder, 'shared/web'))
    guest = await bootTestGuest({
      room: { cpus: 0, memoryMib: 64, memorySlots: 1 },
      // A busy machine needs the longer timeout under emulation.
      append: [CRUN, 'agent.hotplug_timeout=10'],
      extra: {
        devices: {
          [SHARE]: { kind: 'share', slot: 6, tag: 'kataShared', backend: specKey('virtiofsd') },
          [SCSI_PORT]: { kind: 'root-port', slot: 7 },
          [DISK_PORT]: { kind: 'root-port', slot: 8 },
        },
        backends: { [specKey('virtiofsd')]: { kind: 'virtiofsd', path: join(folder, 'shared') } },
      },
    })
    // The Go runtime creates every sandbox in this way.
    await guest.agent.createSandbox({
      sandboxId: 'pod',
      hostname: 'pod',
      storages: [
        {
          driver: 'virtio-fs',
          source: 'kataShared',
          fstype: 'virtiofs',
          options: ['nodev'],
          mountPoint: `${SHARED}/`,
        },
        {
          driver: 'ephemeral',
          source: 'shm',
          fstype: 'tmpfs',
          options: ['noexec', 'nosuid', 'nodev', 'mode=1777', 'size=8388608'],
          mountPoint: '/run/kata-containers/sandbox/shm',
        },
      ],
    })
    pod = podOf(guest.agent, `${SHARED}/web/root`)
  })

  afterAll(async () => {
    await guest?.stop()
  })

  it("runs a container in the host's folder, both writing to it", async () => {
    writeFileSync(join(folder, 'shared/web/root/from-host'), 'host')
    await expect(output('web', 'cat /from-host; echo -n guest > /from-guest')).resolves.toBe('host')
    expect(readFileSync(join(folder, 'shared/web/root/from-guest'), 'utf8')).toBe('guest')
  })

  it("copies a long file into the host's folder", async () => {
    const data = randomBytes(1.5 * 2 ** 20)
    const file = { path: `${SHARED}/copied/file`, fileMode: 0o100_644, dirMode: 0o755 }
    const fileSize = BigInt(2 * data.length)
    for (const offset of [0, data.length])
      await guest.agent.copyFile({ ...file, fileSize, offset: BigInt(offset), data })
    const copied = readFileSync(join(folder, 'shared/copied/file'))
    expect(copied.equals(Buffer.concat([data, data]))).toBe(true)
  })

  it('lays an overlay over the folder, which is removed with the container', async () => {
    const storage = {
      driver: 'overlayfs',
      source: 'overlay',
      fstype: 'overlay',
      options: [`lowerdir=${SHARED}/web/root`, 'io.katacontainers.fs-opt.overlay-rw'],
      mountPoint: '/run/kata-containers/layered/rootfs',
    }
    const script =
      'echo new > /layer-file; cat /layer-file; grep -c kata-containers/layered /guest/proc/1/mounts'
    await expect(output('layered', script, [storage])).resolves.toBe('new\n1\n')
    expect(existsSync(join(folder, 'shared/web/root/layer-file'))).toBe(false)
    const left = 'grep -c kata-containers/layered /guest/proc/1/mounts; ls /kata'
    await expect(output('web', left)).resolves.not.toContain('layered')
  })

  it('lays 120 layers over each other, whose paths mount(2) would not take', async () => {
    const names = Array.from({ length: 120 }, (_, index) => `${index}`)
    for (const name of names) {
      mkdirSync(join(folder, 'shared/web/layers', name), { recursive: true })
      writeFileSync(join(folder, 'shared/web/layers', name, 'top'), name)
    }
    const storage = {
      driver: 'overlayfs',
      source: 'overlay',
      fstype: 'overlay',
      options: [`lowerdir=${names.map((name) => `${SHARED}/web/layers/${name}`).join(':')}`, 'ro'],
      mountPoint: '/run/kata-containers/sandbox/storage/layers',
    }
    const script = 'cat /kata/sandbox/storage/layers/top; grep -c web/layers/119 /guest/proc/1/mounts'
    await expect(output('layers', script, [storage])).resolves.toBe('01\n')
  })

  it('loads the driver of a SCSI controller that is plugged in while a request waits for its disk', async () => {
    const storage = {
      driver: 'scsi',
      source: '1:3',
      fstype: 'ext4',
      options: ['ro'],
      mountPoint: '/run/kata-containers/sandbox/storage/scsi',
    }
    const reading = output('scsi', 'cat /kata/sandbox/storage/scsi/hello', [storage])
    await plugScsiDisk(guest, diskWith(folder, { hello: 'from a LUN' }))
    await expect(reading).resolves.toBe('from a LUN')
  })

  it('loads the drivers of an NVDIMM that is plugged in, each after the previous one has made a device', async () => {
    const { qmp, gone } = guest.guest.vm
    await plugMemory(qmp, { key: specKey('nvdimm'), sizeMib: 32, driver: 'nvdimm' }, gone)
    const storage = {
      driver: 'nvdimm',
      source: '/dev/pmem0',
      fstype: 'ext4',
      driverOptions: ['create_filesystem'],
      mountPoint: '/run/kata-containers/sandbox/storage/nvdimm',
    }
    const script =
      'cd /kata/sandbox/storage/nvdimm; echo -n kept > file; cat file; grep -c pmem0 /guest/proc/1/mounts'
    await expect(output('nvdimm', script, [storage])).resolves.toBe('kept1\n')
  })

  it('lists the SCSI disks when the requested one does not appear', async () => {
    const mountPoint = '/run/kata-containers/sandbox/storage/none'
    const storage = { driver: 'scsi', source: '1:4', fstype: 'ext4', options: [], mountPoint }
    await expect(output('none', 'true', [storage])).rejects.toThrow(
      /SCSI disk 1:4: no \/sys\/bus\/scsi\/devices\/\*:0:1:4.*sysfs shows .*0:0:1:3/,
    )
  })

  it('gives a container a disk that is plugged in while it is created, under the number it has in the guest', async () => {
    const path = join(folder, 'raw.img')
    writeFileSync(path, 'from the host\n'.padEnd(1024 * 1024, '\0'))
    const device = { type: 'blk', id: '08/00', vmPath: '/dev/vdx', containerPath: '/dev/data' }
    // The numbers of a host where the disk is 8:0.
    const numbers = { Type: 'b', Major: 8n, Minor: 0n }
    const linux = {
      Devices: [{ Path: '/dev/data', ...numbers, FileMode: 0o660 }],
      Resources: { Devices: [{ Allow: false, Type: 'a', Access: 'rwm' }] },
    }
    const script = 'head -n 1 /dev/data; echo from the guest > /dev/data; sync'
    const reading = output('device', script, [], { devices: [device], linux })
    const { qmp, gone } = guest.guest.vm
    const disk = {
      key: specKey('disk'),
      device: { kind: 'disk', slot: 0, serial: 'raw', backend: specKey('disk-file') },
      backend: { kind: 'file', path, access: 'read-write' },
      bus: DISK_PORT,
    } as const
    await plugDisk(qmp, disk, gone)
    await expect(reading).resolves.toBe('from the host\n')
    await unplugDisk(qmp, disk, gone)
    expect(readFileSync(path, 'utf8').split('\n')[0]).toBe('from the guest')
  })

  it("shows a container whole versions only of the host's folder, and each with an inotify event", async () => {
    const { files } = await realOs()
    const [volume, program] = [
      join(folder, 'shared/config'),
      join(folder, 'shared/web/root/bin/volume-reader'),
    ]
    writeFileSync(program, await guestProgram('volume-reader'), { mode: 0o755 })
    await publishFirst(files, volume)
    const mountPoint = `${SHARED}/watchable/config`
    const options = ['rbind', 'rprivate', 'ro']
    const storage = {
      driver: 'watchable-bind',
      source: `${SHARED}/config`,
      fstype: 'bind',
      options,
      mountPoint,
    }
    const mount = { destination: '/volume', type: 'bind', source: mountPoint, options }
    const reader = await start('reader', READ_VERSIONS, [storage], { mounts: [mount] })
    await expectWholeVersions(reader, files, volume)
    await guest.agent.removeContainer({ containerId: 'reader' })
    await expect(output('after', 'grep -c watchable /guest/proc/1/mounts')).resolves.toBe('0\n')
  })

  it('gives a container huge pages, asked for in one option as shims do', async () => {
    const mountPoint = '/run/kata-containers/sandbox/ephemeral/huge'
    const options = ['pagesize=2097152,size=4194304']
    const storage = { driver: 'ephemeral', source: 'nodev', fstype: 'hugetlbfs', options, mountPoint }
    const script = 'fallocate -l 4194304 /huge/a; grep -E "HugePages_(Total|Free)" /guest/proc/meminfo'
    const counts = await output('huge', script, [storage], { mounts: [bind(mountPoint, '/huge')] })
    expect(counts).toBe('HugePages_Total:       2\nHugePages_Free:        0\n')
  })

  it('answers UNIMPLEMENTED for 9p, which the kernel lacks', async () => {
    const mountPoint = '/run/kata-containers/sandbox/nine'
    const storage = { driver: '9p', source: 'x', fstype: '9p', options: ['trans=virtio'], mountPoint }
    await expect(output('nine', 'true', [storage])).rejects.toMatchObject({ code: 'UNIMPLEMENTED' })
  })

  it('is not frozen while its virtio-fs does not answer, names the process that waits, and goes on', async () => {
    const lifecycle = clientFor(LifecycleDefinition, guest.guest.connection)
    const waits = 'echo begun; while true; do cat /bin/busybox > /dev/null; done'
    const waiting = await start('waiting', waits, [], {})
    await waiting.readUntil('begun\n')
    signalVirtiofsd('SIGSTOP')
    try {
      await expect(lifecycle.quiesce({})).rejects.toThrow(
        /^container waiting: not frozen within 5 s: no disk or server answers process \d+/,
      )
      expect((await guest.introspection.getSandbox({})).frozen).toBeUndefined()
      const { containers } = await guest.introspection.listContainers({ containerId: 'waiting' })
      expect(containers).toMatchObject([{ frozen: false }])
    } finally {
      signalVirtiofsd('SIGCONT')
    }
    const isFrozen = async () => {
      const answer = await lifecycle.quiesce({}).catch(() => undefined)
      return answer?.containers.toSorted()
    }
    await expect.poll(isFrozen, { timeout: 60_000 }).toEqual(['waiting'])
    await expect(lifecycle.thaw({})).resolves.toEqual({ wasFrozen: true })
    await pod.remove('waiting')
  })

  /** Comes last, because the guest powers off. */
  it('names the mount after 30 s in a DestroySandbox whose virtio-fs is dead, and powers the guest off when it is repeated', async () => {
    signalVirtiofsd('SIGKILL')
    await expect(guest.agent.destroySandbox({})).rejects.toThrow(`unmount ${SHARED}: ETIMEDOUT`)
    await guest.agent.destroySandbox({})
    expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
  })

  async function output(
    id: string,
    script: string,
    storages: DeepPartial<Storage>[] = [],
    more: ContainerOptions = {},
  ): Promise<string> {
    const init = await start(id, script, storages, more)
    const read = await init.readAll()
    await init.wait()
    await guest.agent.removeContainer({ containerId: id })
    return read.toString()
  }

  async function start(
    id: string,
    script: string,
    storages: DeepPartial<Storage>[],
    { mounts = [], ...more }: ContainerOptions,
  ): Promise<RemoteProcess> {
    const everywhere = [GUEST_PROC, bind('/run/kata-containers', '/kata')]
    return pod.run(id, ['sh', '-c', script], { ...more, storages, mounts: [...everywhere, ...mounts] })
  }
})

function signalVirtiofsd(signal: NodeJS.Signals): void {
  for (const pid of programsOf(process.pid)) {
    if (readFileSync(`/proc/${pid}/comm`, 'latin1') === 'virtiofsd\n') process.kill(pid, signal)
  }
}

async function plugScsiDisk({ guest: { vm } }: TestGuest, image: string): Promise<void> {
  const { qmp, gone } = vm
  const add = { driver: 'virtio-scsi-pci', id: 'scsi', bus: qemuId(SCSI_PORT), addr: '0x0' }
  await qmp.execute('device_add', add, gone)
  const file = { driver: 'file', filename: image } as const
  await qmp.execute('blockdev-add', { driver: 'raw', 'node-name': 'lun', file }, gone)
  const lun = { driver: 'scsi-hd', id: 'lun-3', bus: 'scsi.0', 'scsi-id': 1, lun: 3, drive: 'lun' }
  await qmp.execute('device_add', lun, gone)
}

function diskWith(folder: string, files: Readonly<Record<string, string>>): string {
  const [tree, image] = [join(folder, 'tree'), join(folder, 'disk.img')]
  mkdirSync(tree)
  for (const [name, content] of Object.entries(files)) writeFileSync(join(tree, name), content)
  writeFileSync(image, '')
  truncateSync(image, 8 * 1024 * 1024)
  execFileSync('/sbin/mkfs.ext4', ['-q', '-d', tree, image])
  return image
}
