import { neverAborted } from '../../../base/abort.ts'
import { errnoOf, messageOf } from '../../../base/errors.ts'
import { ADDRESS_BITS } from '../../../base/ip-address.ts'
import type { Logger } from '../../../base/log.ts'
import { checkLinks } from '../../../base/vm-metadata/point-to-point.ts'
import { waitForDevice } from '../../../hotplug/wait-for-device.ts'
import type { Clock } from '../../../os/clock.ts'
import type { Uevents } from '../../../os/devices/uevents.ts'
import type { Files } from '../../../os/files/files.ts'
import type { Link, Network } from '../../../os/network/network.ts'
import type { AppliedSetting, NetworkRecord } from '../network-record.ts'
import { applyLinks } from './apply-links.ts'
import { addressOf, isSameAddress, isSameGateway, type PlacedLink, routeOf } from './placed-link.ts'
import type { FoundMetadata } from './read-vm-metadata.ts'

export interface NetworkContext {
  readonly network: Network
  readonly files: Files
  readonly uevents: Uevents
  readonly clock: Clock
  readonly log: Logger
  readonly record: NetworkRecord
  /** The name or MAC address of the link to the host; empty for the first Ethernet link. */
  readonly interface: string
  readonly timeoutMs: number
}

/**
 * Skips wrong parts of the metadata with a warning. Returns whether anything changed. Throws INTERNAL when the link
 * does not appear in time, and the kernel's error when it cannot be set up.
 */
export async function configureNetwork(
  dependencies: NetworkContext,
  { item, metadata }: FoundMetadata,
): Promise<boolean> {
  const { network, log, record } = dependencies
  const { links, problems } = checkLinks(metadata.networkConfig)
  for (const problem of problems) log.warn('part of the VM metadata ignored', { item, problem })
  if (links.length === 0) return applyLinks(network, [], log)
  const link = await waitForLink(dependencies)
  const wanted = links.map((each) => ({ ...each, linkIndex: link.index }))
  const wasSetUp = setUp(network, link)
  const changed = applyLinks(network, wanted, log)
  record.note('metadata', [
    { kind: 'interface', subject: link.name, value: `up, from ${item}` },
    ...effectiveSettings(network, link, wanted),
  ])
  return changed || wasSetUp
}

/** The wanted settings that are in effect. The kernel or a call of the API may have overridden others. */
function effectiveSettings(
  network: Network,
  { name }: Link,
  wanted: readonly PlacedLink[],
): readonly Omit<AppliedSetting, 'source'>[] {
  const addresses = network.addresses()
  const defaults = network.routes().filter(({ destination }) => destination.prefixLength === 0)
  const given = wanted
    .filter((link) => addresses.some((other) => isSameAddress(other, addressOf(link))))
    .map(({ ip, family, peerIp }) => ({
      kind: 'address' as const,
      subject: `${ip}/${ADDRESS_BITS[family]}`,
      value: `${name} peer ${peerIp}`,
    }))
  const routed = wanted
    .filter((link) => defaults.some((other) => isSameGateway(other, routeOf(link))))
    .map((link) => ({
      kind: 'route' as const,
      subject: `${routeOf(link).destination.address}/0`,
      value: `via ${link.peerIp} dev ${name}`,
    }))
  return [...given, ...routed]
}

/** The network driver may be loaded before it has found its card. */
async function waitForLink(dependencies: NetworkContext): Promise<Link> {
  const { interface: wanted, log, network } = dependencies
  const description = wanted === '' ? 'an Ethernet interface' : `network interface ${wanted}`
  const probe = async () => {
    const found = chooseLink(network.links(), wanted)
    return found === undefined ? { missing: description } : { found }
  }
  const matches = ({ subsystem, action }: { readonly subsystem: string; readonly action: string }) =>
    subsystem === 'net' && action !== 'remove'
  const { link, others } =
    chooseLink(network.links(), wanted) ??
    (await waitForDevice(dependencies, { description, probe, matches }, neverAborted))
  if (others.length > 0) {
    const ignored = others.map(({ name }) => name).join(' ')
    log.warn('VM metadata does not name its interface', { used: link.name, ignored })
  }
  await ignoreRouters(dependencies, link)
  return link
}

/** Disables router advertisements, because the host's metadata alone configures the link. */
async function ignoreRouters({ files, log }: NetworkContext, link: Link): Promise<void> {
  const path = `/proc/sys/net/ipv6/conf/${link.name}/accept_ra`
  try {
    await files.write(path, '0')
  } catch (error) {
    // A kernel without IPv6 has no such file.
    if (errnoOf(error) === 'ENOENT') return
    log.warn('router advertisements not disabled', { interface: link.name, error: messageOf(error) })
  }
}

function setUp(network: Network, link: Link): boolean {
  if (!link.up) network.setLink(link.index, { up: true })
  return !link.up
}

/** ARPHRD_ETHER. */
const ETHERNET = 1

export interface ChosenLink {
  readonly link: Link
  readonly others: readonly Link[]
}

/** Chooses by the configured name or MAC address, else the first Ethernet link by index, cards before bridges. */
export function chooseLink(links: readonly Link[], wanted: string): ChosenLink | undefined {
  if (wanted !== '') {
    const link = links.find(
      ({ name, hardwareAddress }) => name === wanted || hardwareAddress === wanted.toLowerCase(),
    )
    return link && { link, others: [] }
  }
  const ethernet = links.filter(({ type, loopback }) => type === ETHERNET && !loopback)
  const cards = ethernet.filter(({ parentDevice }) => parentDevice !== '')
  const [link, ...others] = cards.length > 0 ? cards : ethernet
  return link && { link, others }
}
