import { parseIp } from '../../base/ip-address.ts'
import { DEVICE_FIELDS, pathOf, refuse, shown } from './component-path.ts'
import { MAX_ADDRESSES, MAX_FIRMWARE_NAME_BYTES, MAX_MEMORY_MIB } from './limits.ts'
import { chipsetOf, type Device, type NicDevice, type NvdimmDevice, type VmSpec } from './spec.ts'

/** Throws INVALID_ARGUMENT that names the field for which the machine cannot have the device, whatever its place. */
export function checkDevice(key: string, device: Device, spec: VmSpec): void {
  const at = (field: string) => pathOf('devices', key, DEVICE_FIELDS[device.kind], field)
  const isMicrovm = chipsetOf(spec.board.machine) === 'microvm'
  const lack = (what: string) => {
    if (isMicrovm)
      refuse(pathOf('devices', key, DEVICE_FIELDS[device.kind]), `machine microvm has no ${what}`)
  }
  switch (device.kind) {
    case 'disk':
      if (device.interface === 'nvme') lack('PCI, which NVMe disks need')
      checkText(at('serial'), device.serial, 20)
      break
    case 'nvdimm':
      lack('persistent memory')
      checkNvdimm(at('sizeBytes'), device, spec)
      break
    case 'nic':
      checkMac(at('mac'), device.mac)
      checkFilters(at, device, spec)
      break
    case 'vsock':
      if (device.cid !== 0 && !(device.cid >= 3 && device.cid < 0xffff_ffff)) {
        refuse(at('cid'), `${device.cid}: reserved, want 3 or above`)
      }
      break
    case 'share':
      checkText(at('tag'), device.tag, 36)
      break
    case 'fw-cfg':
      checkFirmwareName(at('name'), device.name)
      break
    case 'pci-bridge':
      lack('PCI, which a bridge needs')
      break
    case 'root-port':
      checkRootPort(pathOf('devices', key, 'rootPort'), device.func ?? 0, spec)
      break
    case 'serial':
    case 'virtio-console':
      break
    default:
      device satisfies never
  }
}

function checkText(at: string, text: string, longest: number): void {
  if (new RegExp(`^[\\w-]{1,${longest}}$`).test(text)) return
  refuse(at, `${shown(text)}: invalid, want 1 to ${longest} letters, digits, _ or -`)
}

function checkMac(at: string, mac: string): void {
  if (!/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(mac)) refuse(at, `${shown(mac)}: invalid, want lower case`)
  if (Number.parseInt(mac.slice(0, 2), 16) % 2 === 1) refuse(at, `${mac}: address of a group`)
}

/**
 * Throws INVALID_ARGUMENT for filters that the card cannot have. Addresses that no filter uses would make a caller believe that
 * others are not let through.
 */
export function checkFilters(
  at: (field: string) => string,
  { filters = [], addresses = [], backend: name }: NicDevice,
  { backends }: VmSpec,
): void {
  const byAddress = filters.filter((filter) => filter === 'no-ip-spoofing' || filter === 'no-arp-spoofing')
  if (addresses.length > 0 && byAddress.length === 0)
    refuse(at('addresses'), 'no filter uses them, want no-ip-spoofing or no-arp-spoofing')
  if (filters.length === 0) return
  const backend = backends[name]
  if (backend?.kind !== 'tap') refuse(at('filters'), 'only a tap can be filtered')
  // A later nft takes a name that ends with `*` for several interfaces.
  if (!/^[\w.-]+$/.test(backend.interfaceName))
    refuse(at('filters'), `interface ${shown(backend.interfaceName)}: want letters, digits, "_", "-" and "."`)
  if (addresses.length === 0 && byAddress.length > 0)
    refuse(at('addresses'), `missing, want those that ${byAddress.join(' and ')} let the guest send from`)
  if (addresses.length > MAX_ADDRESSES)
    refuse(at('addresses'), `${addresses.length}, want at most ${MAX_ADDRESSES}`)
  for (const [index, address] of addresses.entries()) checkAddress(`${at('addresses')}[${index}]`, address)
}

/** Throws INVALID_ARGUMENT for what is no address of a guest. */
export function checkAddress(at: string, text: string): void {
  const bytes = parseIp(text)
  const isGroup = bytes !== undefined && (bytes.length === 4 ? (bytes[0] ?? 0) >= 224 : bytes[0] === 0xff)
  if (bytes === undefined || isGroup || !bytes.some((byte) => byte !== 0))
    refuse(at, `${shown(text)}: want the IPv4 or IPv6 address of a guest`)
}

function checkFirmwareName(at: string, name: string): void {
  if (/^opt\/[!-~]+$/.test(name) && name.length <= MAX_FIRMWARE_NAME_BYTES) return
  const want = `want opt/ and at most ${MAX_FIRMWARE_NAME_BYTES} printable characters`
  refuse(at, `${shown(name)}: invalid, ${want}`)
}

function checkRootPort(at: string, func: number, { board: { machine } }: VmSpec): void {
  if (chipsetOf(machine) !== 'q35') refuse(at, `machine ${machine} has no root ports`)
  if (!Number.isInteger(func) || func < 0 || func > 7) refuse(`${at}.function`, `${func}: want 0 to 7`)
}

/** The file may be the only copy of an image, and whatever the guest writes to its memory would reach it. */
function checkNvdimm(at: string, { backend: name, sizeBytes }: NvdimmDevice, { backends }: VmSpec): void {
  const backend = backends[name]
  if (backend?.kind === 'file' && backend.access !== 'read-only') {
    refuse(pathOf('backends', name, 'file', 'access'), `${backend.access}, want read-only`)
  }
  if (backend?.kind === 'file' && backend.encryption !== undefined)
    refuse(pathOf('backends', name, 'file', 'encryption'), 'of a disk only')
  const isInRange = sizeBytes > 0 && sizeBytes <= MAX_MEMORY_MIB * 2 ** 20
  if (!isInRange || sizeBytes % PERSISTENT_MEMORY_UNIT !== 0) {
    refuse(at, `${sizeBytes}: want a multiple of 2 MiB, at most ${MAX_MEMORY_MIB} MiB`)
  }
}

/** The kernel describes memory in units of this size. */
const PERSISTENT_MEMORY_UNIT = 2 * 2 ** 20
