import { basename, normalize } from 'node:path/posix'
import {
  type Device,
  Device_Kind as Kind,
  type ListDevicesResponse,
} from '../../gen/microvm/agent/v1/introspection.ts'
import type { Files } from '../../os/files/files.ts'

const SECTOR_BYTES = 512n

/** Reads sysfs. A device that is unplugged meanwhile is left out, or lacks the fields that were not read yet. */
export async function listDevices(files: Files): Promise<ListDevicesResponse> {
  const devices = await Promise.all([
    all(files, '/sys/class/block', (place) => block(files, place)),
    all(files, '/sys/class/net', (place) => network(files, place)),
    all(files, '/sys/bus/pci/devices', (place) => pci(files, place)),
  ])
  return { devices: devices.flat() }
}

interface Place {
  readonly name: string
  /** The folder in sysfs; its path names the buses. */
  readonly path: string
}

type Found = Partial<Device> & Pick<Device, 'kind'>

async function all(
  files: Files,
  folder: string,
  describe: (place: Place) => Promise<Found>,
): Promise<readonly Device[]> {
  const found = (await files.list(folder)).map(async (name): Promise<Device[]> => {
    const link = await files.readLink(`${folder}/${name}`).catch(() => undefined)
    if (link === undefined) return []
    const path = normalize(`${folder}/${link}`)
    return [{ ...NOTHING, name, path, ...(await describe({ name, path })) }]
  })
  return (await Promise.all(found)).flat()
}

const NOTHING = { node: '', numbers: '', driver: '', sizeBytes: 0n, identity: '', serial: '' } as const

async function block(files: Files, { name, path }: Place): Promise<Found> {
  const [numbers, sectors] = await Promise.all([read(files, `${path}/dev`), read(files, `${path}/size`)])
  return {
    kind: Kind.BLOCK,
    node: `/dev/${name.replaceAll('!', '/')}`,
    numbers,
    driver: await driverAt(files, `${path}/device`),
    // Of virtio and of NVMe.
    serial: (await read(files, `${path}/serial`)) || (await read(files, `${path}/device/serial`)),
    sizeBytes: /^\d+$/.test(sectors) ? BigInt(sectors) * SECTOR_BYTES : 0n,
  }
}

async function network(files: Files, { path }: Place): Promise<Found> {
  return { kind: Kind.NETWORK, driver: await driverAt(files, `${path}/device`) }
}

async function pci(files: Files, { path }: Place): Promise<Found> {
  const [vendor, device, type] = await Promise.all(
    ['vendor', 'device', 'class'].map(async (file) => (await read(files, `${path}/${file}`)).slice(2)),
  )
  return { kind: Kind.PCI, driver: await driverAt(files, path), identity: `${vendor}:${device} ${type}` }
}

async function driverAt(files: Files, path: string): Promise<string> {
  const link = await files.readLink(`${path}/driver`).catch(() => '')
  return basename(link)
}

async function read(files: Files, path: string): Promise<string> {
  return (await files.readText(path).catch(() => '')).trim()
}
