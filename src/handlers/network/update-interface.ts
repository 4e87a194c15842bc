import { AgentError, messageOf } from '../../base/errors.ts'
import { broadcastOf, formatIp, parseIp } from '../../base/ip-address.ts'
import type { Interface } from '../../gen/types.ts'
import { waitForPciNetworkDevice } from '../../hotplug/network-device.ts'
import { type PciPath, parsePciPath } from '../../hotplug/pci/pci-path.ts'
import type { Link, LinkAddress, LinkChange, Network } from '../../os/network/network.ts'
import {
  checkAddress,
  checkHardwareAddress,
  checkHardwareAddressFits,
  checkNumber,
  checkPrefixLength,
  invalid,
} from './check-fields.ts'
import type { NetworkContext } from './context.ts'
import { linkStates, restoreLinks, restoreLost, sameAddress, temporaryName } from './link-state.ts'

/**
 * Changes only what differs: a link goes down only to be renamed, and what it loses is restored. Throws
 * INVALID_ARGUMENT for a wrong field, INTERNAL `Link not found (Address: …)`, or the kernel's error after an undo.
 */
export async function updateInterface(
  dependencies: NetworkContext,
  request: Interface,
  signal: AbortSignal,
): Promise<Interface> {
  const { os, log, record } = dependencies
  const wanted = checkInterface(request)
  const pluggedName = await waitForPluggedLink(dependencies, wanted, signal)
  // Nothing is awaited from here on, so no other call sees a half-configured link.
  const { network } = os
  const links = network.links()
  const link = getLink(links, wanted, pluggedName)
  if (wanted.hardwareAddress !== undefined)
    checkHardwareAddressFits('interface.hwAddr', wanted.hardwareAddress, link)
  // IPv6 addresses are skipped when IPv6 is disabled.
  const addresses = wanted.addresses.filter(({ family }) => family === 'ipv4' || link.ipv6)
  const holder = links.find((other) => other.name === wanted.name && other.index !== link.index)
  if (holder?.loopback) throw invalid('interface.name', wanted.name, 'the name of the loopback link')
  const affected = holder === undefined ? [link] : [link, holder]
  const before = linkStates(network, affected, { goDown: link.name !== wanted.name })
  try {
    setHardwareAddress(dependencies, link, wanted, pluggedName !== undefined)
    if (changeLink(network, link, holder, wanted)) restoreLost(network, before)
    addAddresses(network, link.index, addresses)
    moveLinkLocal(network, link, wanted.hardwareAddress)
  } catch (error) {
    restoreLinks(network, log, before)
    throw error
  }
  record.note('rpc', [
    { kind: 'interface', subject: wanted.name, value: describe(wanted, link) },
    ...addresses.map(({ address, prefixLength }) => ({
      kind: 'address' as const,
      subject: `${address}/${prefixLength}`,
      value: wanted.name,
    })),
  ])
  return request
}

async function waitForPluggedLink(
  { hotplug }: NetworkContext,
  { devicePath }: InterfaceRequest,
  signal: AbortSignal,
): Promise<string | undefined> {
  return devicePath === undefined ? undefined : waitForPciNetworkDevice(hotplug, devicePath, signal)
}

/** The plugged-in link, else the one with the hardware address, else the one with the name. */
function getLink(links: readonly Link[], wanted: InterfaceRequest, pluggedName: string | undefined): Link {
  const { name, hardwareAddress } = wanted
  const byAddress = links.filter((link) => !link.loopback && link.hardwareAddress === hardwareAddress)
  const found =
    links.find((link) => link.name === pluggedName) ??
    byAddress.find((link) => link.name === name) ??
    byAddress[0] ??
    links.find((link) => link.name === name)
  if (found !== undefined) return found
  const sought = hardwareAddress === undefined ? `Name: ${name}` : `Address: ${hardwareAddress}`
  throw new AgentError('INTERNAL', `Link not found (${sought})`, { fault: 'caller' })
}

/** A plugged-in card may keep its own address, because the device path already identifies it. */
function setHardwareAddress(
  { os, log }: NetworkContext,
  link: Link,
  { hardwareAddress }: InterfaceRequest,
  isPluggedIn: boolean,
): void {
  if (hardwareAddress === undefined || hardwareAddress === link.hardwareAddress) return
  try {
    os.network.setLink(link.index, { hardwareAddress })
  } catch (error) {
    if (!isPluggedIn) throw error
    log.warn('hardware address not set', { link: link.name, error: messageOf(error) })
  }
}

/** The kernel keeps the address that it has made of the hardware address before, while the link is up: two clones would share it. */
function moveLinkLocal(network: Network, link: Link, hardwareAddress = link.hardwareAddress): void {
  const [before, after] = [link.hardwareAddress, hardwareAddress].map(linkLocalOf)
  if (before === undefined || after === undefined || before === after) return
  const addresses = network.addresses().filter(({ linkIndex }) => linkIndex === link.index)
  const kept = addresses.find(({ address }) => address === before)
  if (kept === undefined) return
  if (!addresses.some(({ address }) => address === after)) network.replaceAddress({ ...kept, address: after })
  network.removeAddress(kept)
}

/** RFC 4291, appendix A; undefined for a hardware address of another length. */
function linkLocalOf(hardwareAddress: string): string | undefined {
  const [first = 0, ...rest] = hardwareAddress.split(':').map((text) => Number.parseInt(text, 16))
  if (rest.length !== 5) return
  const id = [first ^ 2, ...rest.slice(0, 2), 0xff, 0xfe, ...rest.slice(2)]
  return formatIp(Uint8Array.from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, ...id]))
}

/** A link that holds the wanted name gets the link's old name. Returns whether a link went down. */
function changeLink(
  network: Network,
  link: Link,
  holder: Link | undefined,
  { name, mtu, arp }: InterfaceRequest,
): boolean {
  const isRenamed = link.name !== name
  if (isRenamed && link.up) network.setLink(link.index, { up: false })
  if (holder !== undefined) {
    if (holder.up) network.setLink(holder.index, { up: false })
    network.setLink(holder.index, { name: temporaryName(holder) })
  }
  const change: LinkChange = {
    ...(isRenamed ? { name } : {}),
    ...(mtu === undefined || mtu === link.mtu ? {} : { mtu }),
    ...(arp === link.arp ? {} : { arp }),
    ...(link.up && !isRenamed ? {} : { up: true }),
  }
  if (Object.keys(change).length > 0) network.setLink(link.index, change)
  if (holder !== undefined) network.setLink(holder.index, { name: link.name, up: true })
  return isRenamed
}

/** Removes only the same IPv6 address with another prefix, because a link can have it only once. */
function addAddresses(network: Network, linkIndex: number, addresses: InterfaceRequest['addresses']): void {
  const present = network.addresses().filter((address) => address.linkIndex === linkIndex)
  for (const wanted of addresses) {
    const address: LinkAddress = { ...wanted, linkIndex }
    if (present.some((other) => sameAddress(other, address))) continue
    const other = present.find(({ family, address: text }) => family === 'ipv6' && text === address.address)
    if (other !== undefined) network.removeAddress(other)
    network.replaceAddress(address)
  }
}

function describe({ mtu, arp, hardwareAddress }: InterfaceRequest, link: Link): string {
  const words = [hardwareAddress ?? link.hardwareAddress, `mtu ${mtu ?? link.mtu}`, ...(arp ? [] : ['noarp'])]
  return words.join(' ')
}

interface InterfaceRequest {
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
function checkInterface(request: Interface): InterfaceRequest {
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
