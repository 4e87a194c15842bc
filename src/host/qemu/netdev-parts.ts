import { AgentError } from '../../base/errors.ts'
import { placeNumber } from '../spec/device-order.ts'
import type { NicDevice, UserSubnet, VmSpec } from '../spec/spec.ts'
import { qemuId, type SpecKey } from '../spec/spec-key.ts'
import type { Part } from './parts.ts'
import { type PartsHost, socketOf } from './parts-host.ts'

/** QEMU's ids for the network of a replaceable card. The card itself is at a port of a hub that stays. */
interface NetworkNames {
  readonly network: string
  /** The port of the hub at which the network is. */
  readonly port: string
}

/**
 * What makes the network of a card, the netdev that the card names last. QEMU 7.2 has no way to give a card another
 * netdev; behind a hub, the network and its port can be removed and made again.
 */
export function netdevParts(spec: VmSpec, device: NicDevice, host: PartsHost): readonly Part[] {
  const card = qemuId(device.backend)
  if (!device.replaceable) return [network(spec, device, card, host)]
  const hubid = placeNumber(spec, device)
  return [
    ...replaceableParts(spec, device, host),
    { option: 'netdev', type: 'hubport', properties: { id: card, hubid } },
  ]
}

/** What a replacement of a card's network removes and makes again: the network, and its port of the hub. */
export function replaceableParts(spec: VmSpec, device: NicDevice, host: PartsHost): readonly Part[] {
  const names = networkNames(device.backend)
  const hubid = placeNumber(spec, device)
  return [
    network(spec, device, names.network, host),
    { option: 'netdev', type: 'hubport', properties: { id: names.port, hubid, netdev: names.network } },
  ]
}

/** A dot is in no id, so these are ids of no other key. */
function networkNames(backend: SpecKey): NetworkNames {
  return { network: `${qemuId(backend)}.net`, port: `${qemuId(backend)}.port` }
}

function network(spec: VmSpec, device: NicDevice, id: string, host: PartsHost): Part {
  const backend = spec.backends[device.backend]
  switch (backend?.kind) {
    case 'tap': {
      const { interfaceName: ifname } = backend
      const { queues = 1 } = device
      const { opener } = host
      if (opener === undefined) {
        const own = { ifname, script: 'no', downscript: 'no', ...(queues > 1 && { queues }) }
        return { option: 'netdev', type: 'tap', properties: { id, ...own } }
      }
      const descriptors =
        queues > 1
          ? { fds: Array.from({ length: queues }, (_, index) => opener.queue(ifname, index)).join(':') }
          : { fd: opener.tap(ifname) }
      return { option: 'netdev', type: 'tap', properties: { id, ...descriptors } }
    }
    case 'passt': {
      const socket = { 'addr.type': 'unix', 'addr.path': socketOf(host, device.backend) }
      return { option: 'netdev', type: 'stream', properties: { id, ...socket } }
    }
    case 'user-network': {
      const rules = backend.forwards.map((rule) => `tcp:127.0.0.1:${rule.hostPort}-:${rule.guestPort}`)
      const hostfwd = rules.length === 0 ? {} : { hostfwd: rules }
      return {
        option: 'netdev',
        type: 'user',
        properties: { id, ...subnetOptions(backend.subnets), ...hostfwd },
      }
    }
    default:
      throw new AgentError(
        'INTERNAL',
        `backend ${device.backend}: not a network, want checkSpec to run first`,
      )
  }
}

/** Names both families, because QEMU gives its own addresses to one that is not named. */
function subnetOptions(subnets: readonly UserSubnet[] = []): Part['properties'] {
  if (subnets.length === 0) return {}
  const v4 = subnets.find(({ family }) => family === 'ipv4')
  const v6 = subnets.find(({ family }) => family === 'ipv6')
  return {
    ipv4: v4 !== undefined,
    ...(v4 && { net: `${v4.network}/${v4.prefixLength}`, host: v4.host, dns: v4.nameServer }),
    // The DHCP server's first address has to be in the subnet too.
    ...(v4 && { dhcpstart: v4.guest }),
    ipv6: v6 !== undefined,
    ...(v6 && { 'ipv6-prefix': v6.network, 'ipv6-prefixlen': v6.prefixLength }),
    ...(v6 && { 'ipv6-host': v6.host, 'ipv6-dns': v6.nameServer }),
  }
}
