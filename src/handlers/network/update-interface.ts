import { AgentError, messageOf } from '../../base/errors.ts'
import type { Interface } from '../../gen/types.ts'
import { waitForPciNetworkDevice } from '../../hotplug/network-device.ts'
import type { Link, LinkAddress, LinkChange, Network } from '../../os/network/network.ts'
import { checkHardwareAddressFits, invalid } from './check-fields.ts'
import type { NetworkDependencies } from './dependencies.ts'
import { checkInterface, type InterfaceRequest } from './interface-request.ts'
import { linkStates, restoreLinks, restoreLost, sameAddress, temporaryName } from './link-state.ts'

/**
 * Changes only what differs: a link goes down only to be renamed, and what it loses is restored. Throws
 * INVALID_ARGUMENT for a wrong field, INTERNAL `Link not found (Address: …)`, or the kernel's error after an undo.
 */
export async function updateInterface(
  dependencies: NetworkDependencies,
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
  { hotplug }: NetworkDependencies,
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
  { os, log }: NetworkDependencies,
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
