import { execFileSync } from 'node:child_process'
import { readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ensureImage } from '../../rootfs/ensure-image.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../scripts/temporary-folder.ts'
import { chooseAcceleration } from '../../src/microvm/acceleration.ts'
import { connectAgent } from '../../src/microvm/connect-agent.ts'
import { guestSpec } from '../../src/microvm/guest-spec.ts'
import { plugDisk } from '../../src/microvm/qmp/hot-plug.ts'
import { type Agent, agentOf } from '../../src/microvm/run/container-session.ts'
import type { VmSpec } from '../../src/microvm/spec.ts'
import { specKey } from '../../src/microvm/spec-key.ts'
import { startVm, type Vm } from '../../src/microvm/vm.ts'
import { openLink } from '../../src/microvm/vsock/open-link.ts'
import { storageOf } from '../handlers/storage/storage-builder.ts'

const PORT_SLOT = 9
const PORT = specKey('hot-plug-port')
const silent = () => {}

describe('storage in a guest', () => {
  const folder = makeTemporaryFolder(tmpdir())
  const cleanUps: (() => Promise<void>)[] = []
  let vm: Vm
  let agent: Agent

  beforeAll(async () => {
    const image = await ensureImage({ progress: silent })
    const link = await openLink({ folder, override: process.env.MICROVM_VSOCK, progress: silent })
    cleanUps.push(() => link.close())
    const parts = { machine: 'q35', memoryMib: 512, cpus: 2, containerRoot: undefined, append: [] } as const
    vm = await startVm(withRootPort(guestSpec({ ...parts, boot: image, link })), acceleration())
    cleanUps.push(() => vm.kill())
    const connection = await connectAgent(link, vm.gone)
    cleanUps.push(async () => connection.close())
    agent = agentOf(connection)
  })

  afterAll(async () => {
    for (const cleanUp of cleanUps.reverse()) await cleanUp()
    removeTemporaryFolder(folder)
  })

  it('tells after its time which disk did not come', async () => {
    const creating = createSandboxWith({ source: '1e' })
    await expect(creating).rejects.toThrow(
      'Timeout after 3s waiting for uevent of a block device at PCI path 1e: no /sys/devices/pci0000:00/0000:00:1e.0',
    )
  })

  it('waits for a disk that is plugged in behind a bridge while the request is in the guest', async () => {
    const creating = createSandboxWith({ source: '09/00' })
    await plugDisk(
      vm.qmp,
      {
        key: specKey('hot'),
        device: { kind: 'disk', slot: PORT_SLOT, serial: 'hot', backend: specKey('hot-file') },
        backend: { kind: 'file', path: emptyExt4(folder), access: 'read-write' },
        rootPort: PORT,
      },
      vm.gone,
    )
    await expect(creating).resolves.toBeDefined()
  })

  function createSandboxWith({ source }: { readonly source: string }) {
    const mountPoint = '/run/kata-containers/sandbox/storage/hot'
    const storages = [storageOf({ driver: 'blk', source, fstype: 'ext4', mountPoint })]
    return agent.createSandbox({ sandboxId: 'hot', hostname: 'hot', storages }, { signal: vm.gone })
  }
})

function withRootPort(spec: VmSpec): VmSpec {
  return { ...spec, devices: { ...spec.devices, [PORT]: { kind: 'root-port', slot: PORT_SLOT } } }
}

function acceleration() {
  const cpuinfo = readFileSync('/proc/cpuinfo', 'utf8')
  return chooseAcceleration({ cpuinfo, kvmUsable: true, override: process.env.MICROVM_ACCEL })
}

function emptyExt4(folder: string): string {
  const path = join(folder, 'hot.img')
  writeFileSync(path, '')
  truncateSync(path, 8 * 1024 * 1024)
  execFileSync('/sbin/mkfs.ext4', ['-q', path])
  return path
}
