import { broadcastOf, parseIp } from '../../base/ip-address.ts'
import type { Interface } from '../../gen/types.ts'
import { type PciPath, parsePciPath } from '../../hotplug/pci/pci-path.ts'
import type { LinkAddress } from '../../os/network/network.ts'
import {
  checkAddress,
  checkHardwareAddress,
  checkNumber,
  checkPrefixLength,
  invalid,
} from './check-fields.ts'

export interface InterfaceRequest {
  readonly name: string
  /** Lower case; undefined when the request has none. */
  readonly hardwareAddress: string | undefined
  readonly devicePath: PciPath | undefined
  /** undefined keeps the current MTU. */
  readonly mtu: number | undefined
  readonly arp: boolean
  readonly addresses: readonly Omit<LinkAddress, 'linkIndex'>[]
}

const IFF_NOARP = 0x80
/** IFA_F_NODAD: the host assigned the address, so it is used at once without duplicate address detection. */
const NODAD = 0x2
const MAX_U32 = 0xffffffff

/** Throws INVALID_ARGUMENT naming the wrong field. */
export function checkInterface(request: Interface): InterfaceRequest {
  const { name, hwAddr, devicePath, IPAddresses } = request
  // The kernel treats a name with % as a pattern.
  if (!/^[^\s/:%\0]{1,15}$/.test(name) || Buffer.byteLength(name) > 15 || name === '.' || name === '..')
    throw invalid('interface.name', name, 'not a link name, want 1 to 15 bytes without space, /, : and %')
  const mtu = checkNumber('interface.mtu', request.mtu, MAX_U32)
  return {
    name,
    hardwareAddress: hwAddr === '' ? undefined : checkHardwareAddress('interface.hwAddr', hwAddr),
    devicePath: devicePath === '' ? undefined : parsePciPath(devicePath),
    mtu: mtu === 0 ? undefined : mtu,
    arp: (request.rawFlags & IFF_NOARP) === 0,
    addresses: IPAddresses.map(({ address, mask }, index) => {
      const field = `interface.IPAddresses[${index}]`
      return wantedAddress(field, address, mask)
    }),
  }
}

/** The family is taken from the text, because not every host sets the field of the API. */
function wantedAddress(field: string, text: string, mask: string): Omit<LinkAddress, 'linkIndex'> {
  const { family, address } = checkAddress(`${field}.address`, text)
  const prefixLength = checkPrefixLength(family, `${field}.mask`, mask)
  const wanted = { family, address, prefixLength, scope: 0 }
  if (family === 'ipv6') return { ...wanted, flags: NODAD }
  // Networks of one or two addresses have no broadcast address.
  if (prefixLength > 30) return { ...wanted, flags: 0 }
  return { ...wanted, flags: 0, broadcast: broadcastOf(parseIp(address) ?? new Uint8Array(), prefixLength) }
}
