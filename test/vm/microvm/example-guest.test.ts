import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  PlugRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { Defaults } from '../../../src/host/machine/defaults.ts'
import { readMachine } from '../../../src/host/machine/document/document.ts'
import { openSecrets } from '../../../src/host/secrets/secrets.ts'
import { ensureBusybox } from '../../../src/image/busybox.ts'
import { writeCompressedCpio } from '../../../src/image/formats/cpio.ts'
import { directory, fileFrom, fileOf } from '../../../src/image/formats/tree.ts'
import { ensureKernel } from '../../../src/image/kernel/kernel.ts'
import { loadOrder, readModuleIndex } from '../../../src/image/kernel/module-list.ts'
import { OTHER_DEFAULTS } from '../../support/host-wing/other-defaults.ts'
import { makeInitrdDisk } from '../../support/loader/loader-disk.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { ip } from '../../support/wing/made-machine.ts'
import { image, openReal } from '../../support/wing/real-wing.ts'
import { ADMIN } from '../../support/wing/requests.ts'

const EXAMPLE = readFileSync(join(import.meta.dirname, '../../fixtures/machines/kubevirt-vm.yaml'), 'utf8')
const BRIDGE = 'mvexample'
const PASSWORD = '5f0f3c4e-8a3c-4c59-9a54-0d8b0a0f2e12'
const MODULES = [
  'virtio_pci',
  'virtio_console',
  'ata_piix',
  'ahci',
  'virtio_scsi',
  'sd_mod',
  'sr_mod',
  'virtio_net',
]

/** The machine has no serial port: the guest tells its hardware at the port of its agent. */
const INIT = `#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for each in $(cat /modules/order); do insmod /modules/$each; done
until [ -n "$port" ]; do
  port=$(grep -l org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name)
done
exec 3<> /dev/$(basename $(dirname $port))
while true; do
  # Without a host at its other end, the port is at its end.
  if ! read line <&3; then usleep 100000; continue; fi
  {
    cd /sys/bus/pci/devices
    for each in *; do echo "pci $each $(cat $each/vendor $each/device $each/class $each/subsystem_device | tr '\\n' ' ')"; done
    for each in ahci ata_piix; do echo "driver $each $(cd /sys/bus/pci/drivers/$each && ls | grep ^0000 | tr '\\n' ' ')"; done
    cd /sys/bus/scsi/devices
    for each in *:*; do echo "scsi $(readlink $each | sed 's/.*pci0000:00.//') $(cat $each/vendor $each/model $each/type | tr '\\n' ' ')"; done
    cd /sys/class/dmi/id
    for each in sys_vendor product_name product_uuid product_serial bios_version; do echo "dmi $each $(cat $each)"; done
    echo "mac $(cat /sys/class/net/eth0/address)"
    grep -E '^(vendor_id|cpu family|model|stepping|cpuid level|flags|address sizes)' /proc/cpuinfo | sort -u
    echo "cpus $(cat /sys/devices/system/cpu/possible /sys/devices/system/cpu/present | tr '\\n' ' ')"
    # Whether an emulated counter is steady enough to be one depends on the moment.
    sed 's/tsc *//' /sys/devices/system/clocksource/clocksource0/available_clocksource
    ls /sys/devices/system/memory | grep -c ^memory
    echo DONE
  } >&3
done
`

const BOOT_MS = 180_000

describe.skipIf(cannotBoot() !== undefined)(
  'the example of the proposal as a guest',
  { timeout: 3 * BOOT_MS },
  () => {
    const folder = temporaryFolder()
    const state = join(folder, 'state')
    const disk = join(folder, 'mntpoint', 'image')
    // Another test has the path, the bridge, and the tap whose name comes of the UUID.
    const document = EXAMPLE.replace(/file: \/mntpoint\S+/, `file: ${disk}`)
      .replace('bridge: mgmtnet', `bridge: ${BRIDGE}`)
      .replace('uuid: 11111111-', 'uuid: 22222222-')
    const registry = memoryRegistry()
    const catalogue = join(folder, 'catalogue.toml')
    let instances: Instances
    let open: (defaults?: Defaults) => Promise<Instances>

    beforeAll(async () => {
      const kernel = await ensureKernel('bookworm-generic', progress)
      const order = loadOrder(readModuleIndex(kernel.modules), MODULES)
      await writeCompressedCpio(join(folder, 'initrd'), [
        ...['bin', 'dev', 'modules', 'proc', 'sys'].map((name) => directory(name)),
        fileFrom('bin/busybox', await ensureBusybox(progress), 0o755),
        fileOf('init', INIT, 0o755),
        fileOf('modules/order', order.map((file) => `${basename(file)}\n`).join('')),
        ...order.map((file) => fileFrom(`modules/${basename(file)}`, join(kernel.modules, file))),
      ])
      const files = { folder, kernel: kernel.image, initrd: join(folder, 'initrd') }
      await makeInitrdDisk(join(folder, 'disk'), files, progress)
      const secrets = await openSecrets(join(folder, 'secrets'))
      await secrets.set('', PASSWORD, Buffer.from('*****'))
      const entries = `roots = ["${folder}"]
[secrets.display0]
id = "${PASSWORD}"
[networks.mgmnet]
bridge = "${BRIDGE}"
[volumes.more]
path = "${image(folder, 'more', 8)}"
`
      await writeFile(catalogue, entries, { mode: 0o600 })
      open = (defaults) => openReal(state, registry, { catalogue, secrets, defaults })
      instances = await open()
    }, BOOT_MS)
    afterAll(async () => {
      await instances?.remove('web', ADMIN).catch(() => {})
      await instances?.close()
      ip('link', 'del', BRIDGE)
    })

    /** Another file at the path of the disk, and another bridge of the name. */
    function provide(): void {
      if (existsSync(disk)) {
        rmSync(disk)
        ip('link', 'del', BRIDGE)
      }
      mkdirSync(dirname(disk), { recursive: true })
      copyFileSync(join(folder, 'disk'), disk)
      ip('link', 'add', BRIDGE, 'type', 'bridge')
    }

    const change = (to: Change) => instances.changeState({ key: 'web', change: to, graceMs: 0 }, ADMIN)

    /** What the guest says of its hardware, once it has booted. */
    async function hardware(): Promise<readonly string[]> {
      const [own = ''] = readdirSync(join(state, 'instances'))
      const run = join(state, 'instances', own, 'run')
      const name = readdirSync(run).find((each) => each.startsWith('channel0')) ?? ''
      const socket = connect(join(run, name))
      socket.setTimeout(BOOT_MS, () => socket.destroy(new Error('the guest does not answer')))
      socket.write('\n')
      let text = ''
      for await (const chunk of socket) {
        text += String(chunk)
        if (text.endsWith('DONE\n')) break
      }
      return text.split('\n').slice(0, -2).sort()
    }

    it('has its hardware at two boots with other backends and defaults, and after a device came and went', async () => {
      provide()
      const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document })
      const made = await instances.ensure(request, ADMIN)
      const machine = readMachine(JSON.parse(made.configurations?.saved ?? ''))
      expect(machine.board.machine).toBe('pc-i440fx-7.2')
      await change(Change.RUN)
      const first = await hardware()
      expect(first).toEqual(
        expect.arrayContaining([
          'dmi sys_vendor KubeVirt',
          'dmi product_name KubeVirt Node',
          'dmi product_serial 11111111-FEED-DEAD-BEEF-111111111111',
          'dmi product_uuid 22222222-feed-dead-beef-111111111111',
          'mac 00:aa:bb:cc:dd:ee',
          'model name\t: Westmere E56xx/L56xx/X56xx (Nehalem-C)',
          'cpus 0-15 0-3 ',
          'driver ahci ',
          'driver ata_piix 0000:00:01.1 ',
          '32',
        ]),
      )
      const places = Object.values(machine.devices).flatMap(({ address }) =>
        address?.type === 'pci' && address.bus === 0
          ? [`pci 0000:00:${address.slot.toString(16).padStart(2, '0')}.${address.function} `]
          : [],
      )
      expect(places.length).toBeGreaterThan(5)
      expect(places.filter((place) => !first.some((line) => line.startsWith(place)))).toEqual([])
      const disks = first.filter((line) => line.startsWith('scsi') && line.includes('QEMU'))
      expect(disks).toHaveLength(2)
      await change(Change.KILL)
      provide()
      await instances.close()
      instances = await open(OTHER_DEFAULTS)
      await change(Change.RUN)
      expect(await hardware()).toEqual(first)
      const features = 'storage: [{ source: more, interface: virtio-blk }]'
      await instances.plug(PlugRequest.fromPartial({ key: 'web', deviceKey: 'more', features }), ADMIN)
      const more = (await hardware()).filter((line) => !first.includes(line))
      expect(more).toEqual([expect.stringMatching(/^pci 0000:00:\w\w\.0 0x1af4 0x1001 0x010000 /)])
      const left = await instances.unplug({ key: 'web', deviceKey: 'more', graceMs: 20_000 }, ADMIN)
      expect(left.devices.more).toBeUndefined()
      expect(await hardware()).toEqual(first)
    })
  },
)
