import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { AgentError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { DeviceDrivers } from '../../src/hotplug/device-drivers.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'

const VIRTIO_BLK = 'virtio:d00000002v00001AF4'
const VIRTIO_NET = 'virtio:d00000001v00001AF4'

describe('DeviceDrivers', () => {
  let os: FakeOs
  let drivers: DeviceDrivers
  /** The arguments of each call of modprobe. */
  let asked: string[][]
  let stderr: string

  beforeEach(async () => {
    os = new FakeOs()
    drivers = new DeviceDrivers(os, silentLogger())
    asked = []
    stderr = ''
    os.tools.script((argv) => {
      asked.push(argv.slice(argv.indexOf('--') + 1))
      return { exitCode: 1, stderr }
    })
  })

  it('loads the drivers of present devices with one modprobe', async () => {
    await device('virtio', 'virtio0', VIRTIO_BLK)
    await device('pci', '0000:00:09.0', 'pci:v00001AF4d00001042\n')
    await device('acpi', 'LNXSYSTM:00', '')
    await device('platform', 'without')
    await device('virtio', 'virtio1', VIRTIO_NET, { bound: true })
    await follow()
    expect(asked.map((aliases) => aliases.sort())).toEqual([['pci:v00001AF4d00001042', VIRTIO_BLK]])
  })

  it('requests no driver for a CPU', async () => {
    await device('cpu', 'cpu0', 'cpu:type:x86,ven0000fam0006mod0055:feature:,0000')
    await follow()
    expect(asked).toEqual([])
  })

  it('loads the driver of an added device, each alias once', async () => {
    await follow()
    add(VIRTIO_BLK)
    add(VIRTIO_BLK)
    await drivers.idle()
    add(VIRTIO_BLK)
    await drivers.idle()
    expect(asked).toEqual([[VIRTIO_BLK]])
  })

  it('loads nothing for a removed or changed device', async () => {
    await follow()
    for (const action of ['remove', 'change', 'bind']) add(VIRTIO_BLK, action)
    await drivers.idle()
    expect(asked).toEqual([])
  })

  it('passes devices that are added while modprobe runs to the next one', async () => {
    const running = Promise.withResolvers<object>()
    os.tools.script((argv) => {
      if (!argv.includes('first')) return undefined
      asked.push(['first'])
      return running.promise
    })
    await follow()
    add('first')
    add('second')
    add('third')
    running.resolve({})
    await drivers.idle()
    expect(asked).toEqual([['first'], ['second', 'third']])
  })

  it('reads all of sysfs again when events were lost', async () => {
    await follow()
    await device('virtio', 'virtio0', VIRTIO_BLK)
    for (const listener of os.uevents.listeners) {
      listener.error(new AgentError('INTERNAL', 'receive uevents: ENOBUFS', { errno: 'ENOBUFS' }))
    }
    await turn()
    await drivers.idle()
    expect(asked).toEqual([[VIRTIO_BLK]])
  })

  it('remembers the errors of modprobe, and continues', async () => {
    await follow()
    stderr = "modprobe: ERROR: could not insert 'nfit': Exec format error\n"
    add('acpi:ACPI0012:')
    await drivers.idle()
    expect(drivers.failures).toEqual(["modprobe: ERROR: could not insert 'nfit': Exec format error"])
    stderr = ''
    add(VIRTIO_BLK)
    await drivers.idle()
    expect(asked.at(-1)).toEqual([VIRTIO_BLK])
  })

  it('ignores only the messages of modprobe about devices without a module', async () => {
    await follow()
    const missing = 'modprobe: WARNING: Module acpi:PNP0C02: not found in directory /lib/modules/6.1.0\n'
    const failure = "modprobe: ERROR: could not insert 'virtio_scsi': Invalid argument"
    os.tools.script((argv) => ({ exitCode: 1, stderr: argv.includes('--quiet') ? '' : missing + failure }))
    add(VIRTIO_BLK)
    await drivers.idle()
    expect(drivers.failures).toEqual([failure])
  })

  it('survives a missing modprobe', async () => {
    os.tools.script(() => Promise.reject(new Error('start /sbin/modprobe: ENOENT')))
    await follow()
    add(VIRTIO_BLK)
    await drivers.idle()
    expect(drivers.failures).toEqual(['start /sbin/modprobe: ENOENT'])
  })

  /** Resolves when sysfs has been searched: FakeOs answers within one turn of the event loop. */
  async function follow() {
    drivers.follow()
    await turn()
    await drivers.idle()
  }

  function add(modalias: string, action = 'add') {
    os.uevents.send(`${action}@/devices/x\0ACTION=${action}\0SUBSYSTEM=virtio\0MODALIAS=${modalias}\0`)
  }

  async function device(bus: string, name: string, modalias?: string, { bound = false } = {}) {
    const folder = `/sys/bus/${bus}/devices/${name}`
    await os.files.makeDirectories(folder)
    if (modalias !== undefined) await os.files.put(`${folder}/modalias`, modalias)
    if (bound) await os.files.symlink('../../drivers/some', `${folder}/driver`)
  }
})
