import { AgentError, messageOf } from '../../base/errors.ts'
import type { Interface } from '../../gen/types.ts'
import { waitForPciNetworkDevice } from '../../hotplug/network-device.ts'
import type { Link, LinkAddress, LinkChange, Network } from '../../os/network/network.ts'
import { checkHardwareAddressFits, invalid } from './check-fields.ts'
import type { NetworkDependencies } from './dependencies.ts'
import { checkInterface, type InterfaceRequest } from './interface-request.ts'
import { linkStates, restoreLinks, restoreLost, sameAddress, temporaryName } from './link-state.ts'

/**
 * UpdateInterface (spec G.1): makes a link what the request says, and answers the request. What is so already is left
 * alone: a link goes down only to be renamed, and gets back what it loses by that. Throws INVALID_ARGUMENT for a wrong
 * field, INTERNAL `Link not found (Address: …)` when there is no such link, and the kernel's refusal; nothing has
 * changed then.
 */
export async function updateInterface(
  dependencies: NetworkDependencies,
  request: Interface,
  signal: AbortSignal,
): Promise<Interface> {
  const { os, log, record } = dependencies
  const wanted = checkInterface(request)
  const pluggedName = await isPluggedIn(dependencies, wanted, signal)
  // From here on nothing is awaited: no other call sees a link on its way.
  const { network } = os
  const links = network.links()
  const link = getLink(links, wanted, pluggedName)
  if (wanted.hardwareAddress !== undefined)
    checkHardwareAddressFits('interface.hwAddr', wanted.hardwareAddress, link)
  // Where IPv6 is disabled its addresses are left out.
  const addresses = wanted.addresses.filter(({ family }) => family === 'ipv4' || link.ipv6)
  const holder = links.find((other) => other.name === wanted.name && other.index !== link.index)
  if (holder?.loopback) throw invalid('interface.name', wanted.name, 'it is the name of the loopback')
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

/** The name of the link behind the request's device path, once it is there. */
async function isPluggedIn(
  { hotplug }: NetworkDependencies,
  { devicePath }: InterfaceRequest,
  signal: AbortSignal,
): Promise<string | undefined> {
  return devicePath === undefined ? undefined : waitForPciNetworkDevice(hotplug, devicePath, signal)
}

/** The plugged-in link; or else the one with the hardware address; or else the one with the name. */
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
  throw new AgentError('INTERNAL', `Link not found (${sought})`)
}

/** A plugged-in card that keeps its own address is still the one that is meant. */
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

/** Gives a link name, MTU and flags in one message; whoever has the name gets the link's own. True when one was down. */
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

/** An address is never taken away, but for the same IPv6 address with another prefix, which a link has once only. */
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
