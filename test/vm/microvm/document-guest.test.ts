import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  DeviceStatus_Plug as Plug,
  PlugRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import { ensureBusybox } from '../../../src/image/busybox.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { writeCompressedCpio } from '../../../src/image/formats/cpio.ts'
import { directory, fileFrom, fileOf } from '../../../src/image/formats/tree.ts'
import { ensureKernel } from '../../../src/image/kernel/kernel.ts'
import { loadOrder, readModuleIndex } from '../../../src/image/kernel/module-list.ts'
import { DEFAULT_KERNEL } from '../../../src/image/packages.ts'
import { OTHER_DEFAULTS } from '../../support/host-wing/other-defaults.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { ip } from '../../support/wing/made-machine.ts'
import { image, openReal } from '../../support/wing/real-wing.ts'
import { ADMIN, tenant } from '../../support/wing/requests.ts'

const HOST = '10.213.7.1'
const OWN = '10.213.7.2'
const OTHER = '10.213.7.66'

/**
 * Tells the guest's hardware at each line that it is sent, and at one with `send` what the host answers, also to another's address.
 * A line with a number puts the clock forward by so many seconds.
 */
const INIT = `#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for each in $(cat /modules/order); do insmod /modules/$each; done
stty -F /dev/ttyS0 -echo
exec < /dev/ttyS0 > /dev/ttyS0
echo READY
while read line; do
  set -- $line
  if [ "$2" = send ]; then
    echo BEGIN $1
    mac=$(cat /sys/class/net/eth0/address)
    try() { name=$1; shift; "$@" > /dev/null 2>&1 && echo $name is answered || echo $name is not; }
    ip link set eth0 up
    for each in ${OWN} ${OTHER}; do ip address add $each/24 dev eth0; done
    try own ping -c 1 -W 5 ${HOST}
    try address ping -c 1 -W 2 -I ${OTHER} ${HOST}
    try ARP arping -I eth0 -c 1 -w 2 -s ${OTHER} ${HOST}
    ip link set eth0 address 52:54:00:00:01:66
    try MAC arping -I eth0 -c 1 -w 2 -s ${OWN} ${HOST}
    ip link set eth0 address $mac
    echo DONE $1
    continue
  fi
  [ -n "$2" ] && date -u -s @$(($(date +%s) + $2)) > /dev/null && hwclock -w -u
  echo BEGIN $1
  cd /sys/bus/pci/devices
  for each in *; do echo "pci $each $(cat $each/vendor $each/device $each/class $each/subsystem_device | tr '\\n' ' ')"; done
  cd /sys/class/dmi/id
  for each in sys_vendor product_name product_uuid product_serial bios_version; do echo "dmi $each $(cat $each)"; done
  grep -E '^(vendor_id|cpu family|model|stepping|cpuid level|flags|address sizes)' /proc/cpuinfo | sort -u
  cat /proc/cmdline
  cd /sys/devices/system/cpu
  for each in $(ls | grep '^cpu[1-9]'); do echo 1 > $each/online; done
  echo cpus possible $(cat possible) present $(cat present) online $(cat online)
  cd /sys/devices/system/node
  for each in node*; do echo $each cpus $(cat $each/cpulist) $(cd $each && ls -d memory[0-9]*) distance $(cat $each/distance); done
  # Whether an emulated counter is steady enough to be one depends on the moment.
  sed 's/tsc *//' /sys/devices/system/clocksource/clocksource0/available_clocksource
  ls /sys/devices/system/memory | grep memory
  for each in $(seq 50); do
    pages=$(sed -n 's/balloon_inflate //p' /proc/vmstat)
    [ $pages -lt 8192 ] && usleep 100000
  done
  echo balloon $pages
  echo clock $(cat /sys/class/rtc/rtc0/since_epoch)
  echo DONE $1
done
`

/** Its guest looks for further CPUs, because it takes the machine for VMware's (src/host/qemu/qemu-arguments.ts). */
const DOCUMENT = `
kind: VM
metadata: { name: web }
spec:
  features:
    memory: { size: 256, current: 224, maximum: 384 }
    cpu: { count: 2, present: 1, features: { hypervisor: false } }
    numa: { cells: [{ cpus: "0", memory: 128 }, { cpus: "1", memory: 128 }] }
    system: linux
    smbios: { manufacturer: Example, product: Document, serial: VMware-0 }
    firmware: { kernel: test, initrd: test-initrd, commandLine: console=ttyS0 quiet mitigations=off }
    storage: [{ source: data, serial: data-of-web }]
    network: [{ source: lan, filter: clean-traffic }]
    metadata: { v4: { ip: ${OWN}/24, peer: ${HOST} } }
    rng: true
`

/** Each node has its memory, and its CPU once that is there. */
const ONE_CPU = [
  'cpus possible 0-1 present 0 online 0',
  'node0 cpus 0 memory0 distance 10 20',
  'node1 cpus memory1 distance 20 10',
]
const TWO_CPUS = [
  'cpus possible 0-1 present 0-1 online 0-1',
  'node0 cpus 0 memory0 distance 10 20',
  'node1 cpus 1 memory1 distance 20 10',
]

const BRIDGES = ['mvdoc0', 'mvdoc1']
const BOOT_MS = 90_000
/** More than a clock is off by itself. */
const FORWARD_S = 7200
const ANNE = tenant('anne')

describe.skipIf(cannotBoot() !== undefined)(
  'a guest that was made of a document',
  { timeout: 3 * BOOT_MS },
  () => {
    const folder = temporaryFolder()
    const catalogue = join(folder, 'catalogue.toml')
    const registry = memoryRegistry()
    let instances: Instances
    let kernel = ''
    let [asked, boots] = [0, 0]

    async function provide(disk: string, network: string): Promise<void> {
      const own = 'tenants = ["anne"]'
      const file = (table: string, name: string, path: string) =>
        `[${table}.${name}]\npath = "${path}"\n${own}\n`
      const files = [
        file('volumes', 'data', image(folder, disk, 8)),
        file('volumes', 'more', image(folder, 'more', 8)),
        file('images', 'test', kernel),
        file('images', 'test-initrd', join(folder, 'initrd')),
      ]
      await writeFile(
        catalogue,
        `roots = ["${folder}"]\n${files.join('')}[networks.lan]\n${network}\n${own}\n`,
        {
          mode: 0o600,
        },
      )
    }

    beforeAll(async () => {
      for (const bridge of BRIDGES) ip('link', 'add', bridge, 'type', 'bridge')
      ip('address', 'add', `${HOST}/24`, 'dev', BRIDGES[0] ?? '')
      ip('link', 'set', BRIDGES[0] ?? '', 'up')
      const built = await ensureImage({ progress })
      kernel = join(folder, 'vmlinuz')
      await writeFile(kernel, readFileSync(built.kernel))
      const busybox = await ensureBusybox(progress)
      const folders = ['bin', 'dev', 'modules', 'proc', 'sys'].map((name) => directory(name))
      const { modules } = await ensureKernel(DEFAULT_KERNEL, progress)
      const order = loadOrder(readModuleIndex(modules), ['virtio_pci', 'virtio_balloon', 'virtio_net'])
      await writeCompressedCpio(join(folder, 'initrd'), [
        ...folders,
        fileFrom('bin/busybox', busybox, 0o755),
        fileOf('init', INIT, 0o755),
        fileOf('modules/order', order.map((file) => `${basename(file)}\n`).join('')),
        ...order.map((file) => fileFrom(`modules/${basename(file)}`, join(modules, file))),
      ])
      await provide('one', `bridge = "${BRIDGES[0]}"`)
      instances = await openReal(join(folder, 'state'), registry, { catalogue })
    })
    afterAll(async () => {
      await instances?.remove('web', ADMIN).catch(() => {})
      await instances?.close()
      for (const bridge of BRIDGES) ip('link', 'del', bridge)
    })

    const change = (to: Change) => {
      if (to === Change.RUN) boots += 1
      return instances.changeState({ key: 'web', change: to, graceMs: 0 }, ANNE)
    }

    /** How far its clock was from this host's when it was last asked. */
    let clockSeconds = 0

    /** What the guest says of its hardware; it sets its clock before. */
    async function hardware(forward = 0): Promise<readonly string[]> {
      const lines = await ask(forward === 0 ? '' : String(forward))
      clockSeconds = Number(lines.at(-1)?.replace('clock ', '')) - Date.now() / 1000
      return lines.slice(0, -1)
    }

    async function ask(what: string): Promise<readonly string[]> {
      const [over, id, ready] = [new AbortController(), `q${asked++}`, Promise.withResolvers<void>()]
      const signal = AbortSignal.any([over.signal, AbortSignal.timeout(BOOT_MS)])
      const input = async function* () {
        await ready.promise
        yield Buffer.from(`${id} ${what}\n`)
      }
      let text = ''
      try {
        for await (const chunk of instances.console('web', input(), { ...ANNE, signal })) {
          text += Buffer.from(chunk).toString().replaceAll('\r', '')
          // The console keeps what earlier boots have said.
          if (text.split('READY').length > boots) ready.resolve()
          if (text.includes(`DONE ${id}\n`)) over.abort()
        }
      } catch (error) {
        if (!over.signal.aborted) throw new Error(`its console:\n${text}`, { cause: error })
      }
      const told = text.slice(text.indexOf(`BEGIN ${id}\n`), text.indexOf(`DONE ${id}\n`))
      return told.split('\n').slice(1, -1)
    }

    const expectForward = () => expect(Math.abs(clockSeconds - FORWARD_S)).toBeLessThan(10)

    it('sees the same hardware at two boots with other backends and defaults, and after a device came and went', async () => {
      const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document: DOCUMENT })
      const made = await instances.ensure(request, ANNE)
      await change(Change.RUN)
      const first = await hardware()
      expect(first).toContain('dmi sys_vendor Example')
      // It has given back 32 MiB.
      expect(first).toContain('balloon 8192')
      expect(first).toEqual(expect.arrayContaining(ONE_CPU))
      expect(first).toContain(`dmi product_uuid ${JSON.parse(made.configurations?.saved ?? '').uuid}`)
      expect(first).toContain('model name\t: Westmere E56xx/L56xx/X56xx (Nehalem-C)')
      expect(await ask('send')).toEqual([
        'own is answered',
        ...['address', 'ARP', 'MAC'].map((name) => `${name} is not`),
      ])
      const plug = (deviceKey: string, features: string) =>
        instances.plug(PlugRequest.fromPartial({ key: 'web', deviceKey, features }), ANNE)
      await plug('more', 'storage: [{ source: more }]')
      const plugged = await plug('second', 'cpu: 1')
      const { saved, desired, current } = plugged.configurations ?? {}
      expect([desired, current]).toEqual([saved, saved])
      const more = 'pci 0000:01:00.0 0x1af4 0x1042 0x010000 0x1100 '
      const others = first.filter((line) => !ONE_CPU.includes(line))
      const withMore = [...others, ...TWO_CPUS, more].sort()
      expect((await hardware(FORWARD_S)).toSorted()).toEqual(withMore)
      expectForward()
      await change(Change.KILL)
      await provide('two', `bridge = "${BRIDGES[1]}"`)
      await instances.close()
      // What the document wishes of its memory wants a balloon.
      const defaults = { ...OTHER_DEFAULTS, present: { ...OTHER_DEFAULTS.present, balloon: true } }
      instances = await openReal(join(folder, 'state'), registry, { catalogue, defaults })
      const anew = JSON.parse((await instances.expand({ document: DOCUMENT }, ANNE)).machine)
      expect(anew).toMatchObject({ board: { machine: 'pc-i440fx-7.2' }, cpu: { model: 'Nehalem' } })
      expect(Object.keys(anew.devices)).toEqual(expect.arrayContaining(['vsock0', 'watchdog0', 'scsi0']))
      const known = await instances.ensure(request, ANNE)
      expect(JSON.parse(known.configurations?.saved ?? '').devices).toEqual(JSON.parse(saved ?? '').devices)
      await change(Change.RUN)
      expect((await hardware()).toSorted()).toEqual(withMore)
      expectForward()
      const unplug = (deviceKey: string) => instances.unplug({ key: 'web', deviceKey, graceMs: 20_000 }, ANNE)
      // QEMU's emulation could not go on without it.
      expect((await unplug('second')).devices.second?.plug).toBe(Plug.LEAVING)
      const left = await unplug('more')
      expect(left.devices.more).toBeUndefined()
      const machine = JSON.parse(made.configurations?.saved ?? '')
      for (const name of ['saved', 'desired', 'current'] as const) {
        const { clock, devices, ...rest } = JSON.parse(left.configurations?.[name] ?? '')
        const { second, ...own } = devices
        expect(second !== undefined).toBe(name === 'current')
        const adjustmentSeconds = expect.closeTo(FORWARD_S, -1)
        const now = { ...machine, clock: { ...machine.clock, adjustmentSeconds } }
        expect({ ...rest, devices: own, clock }).toEqual(now)
      }
      expect((await hardware()).toSorted()).toEqual([...others, ...TWO_CPUS].sort())
    })
  },
)
