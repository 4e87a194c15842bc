import { errnoOf, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { waitForDevice } from '../../../hotplug/wait-for-device.ts'
import type { Link, Network } from '../../../os/network.ts'
import type { Clock, Files, Uevents } from '../../../os/os.ts'
import { applyLinks } from './apply-links.ts'
import { chooseLink } from './choose-link.ts'
import { checkLinks } from './point-to-point.ts'
import type { FoundMetadata } from './read-vm-metadata.ts'

/** What applying VM metadata to the network needs. */
export interface NetworkDependencies {
  readonly network: Network
  readonly files: Files
  readonly uevents: Uevents
  readonly clock: Clock
  readonly log: Logger
  /** Name or MAC address of the link that leads to the host; empty: the only Ethernet, or the first. */
  readonly interface: string
  /** How long the link is waited for. */
  readonly timeoutMs: number
}

/**
 * Gives the guest the addresses and default routes that `found` names, and takes back what earlier metadata gave.
 * A part of it that is wrong is left out with a warning. Tells whether there was anything to change. Throws INTERNAL when
 * the link did not come in time, and the kernel's error when it cannot be set up.
 */
export async function configureNetwork(
  dependencies: NetworkDependencies,
  { item, metadata }: FoundMetadata,
): Promise<boolean> {
  const { network, log } = dependencies
  const { links, problems } = checkLinks(metadata.networkConfig)
  for (const problem of problems) log.warn('part of the VM metadata ignored', { item, problem })
  if (links.length === 0) return applyLinks(network, [], log)
  const link = await readyLink(dependencies)
  const wasSetUp = setUp(network, link)
  const changed = applyLinks(
    network,
    links.map((each) => ({ ...each, linkIndex: link.index })),
    log,
  )
  const addresses = links.map(({ ip, peerIp }) => `${ip} peer ${peerIp}`).join(', ')
  log.info('network from VM metadata', {
    item,
    interface: link.name,
    addresses,
    changed: changed || wasSetUp,
  })
  return changed || wasSetUp
}

/** The link once it is there. The network driver may be loaded, and yet not have found its card. */
async function readyLink(dependencies: NetworkDependencies): Promise<Link> {
  const { interface: wanted, log, network } = dependencies
  const description = wanted === '' ? 'an Ethernet interface' : `network interface ${wanted}`
  const probe = async () => {
    const found = chooseLink(network.links(), wanted)
    return found === undefined ? { missing: description } : { found }
  }
  const concerns = ({ subsystem, action }: { readonly subsystem: string; readonly action: string }) =>
    subsystem === 'net' && action !== 'remove'
  const { link, others } =
    chooseLink(network.links(), wanted) ??
    (await waitForDevice(dependencies, { description, probe, concerns }, NEVER))
  if (others.length > 0) {
    const ignored = others.map(({ name }) => name).join(' ')
    log.warn('VM metadata does not say which interface it is about', { used: link.name, ignored })
  }
  await ignoreRouters(dependencies, link)
  return link
}

/** The host says what there is on the link: a router's advertisements must not add to it. */
async function ignoreRouters({ files, log }: NetworkDependencies, link: Link): Promise<void> {
  const path = `/proc/sys/net/ipv6/conf/${link.name}/accept_ra`
  try {
    await files.write(path, '0')
  } catch (error) {
    // A kernel without IPv6 has no such file, and no routers that it would listen to.
    if (errnoOf(error) === 'ENOENT') return
    log.warn('router advertisements are still heeded', { interface: link.name, error: messageOf(error) })
  }
}

function setUp(network: Network, link: Link): boolean {
  if (!link.up) network.setLink(link.index, { up: true })
  return !link.up
}

/** The wait ends by itself. */
const NEVER = new AbortController().signal
