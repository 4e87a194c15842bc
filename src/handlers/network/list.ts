import type { IpFamily } from '../../base/ip-address.ts'
import type { Route as ApiRoute, Interface } from '../../gen/types.ts'
import type { Network } from '../../os/network/network.ts'
import { apiFamily } from './check-fields.ts'

export function listInterfaces(network: Network): Interface[] {
  const addresses = network.addresses()
  return network.links().map(({ index, name, hardwareAddress, mtu }) => ({
    device: '',
    name,
    IPAddresses: addresses
      .filter(({ linkIndex }) => linkIndex === index)
      .map(({ family, address, prefixLength }) => ({
        family: apiFamily(family),
        address,
        mask: String(prefixLength),
      })),
    mtu: BigInt(mtu),
    hwAddr: hardwareAddress.toUpperCase(),
    devicePath: '',
    type: '',
    rawFlags: 0,
  }))
}

/** ListRoutes reports this destination for every route with a gateway, even one that is not a default route (sic). */
const BEHIND_GATEWAY: Readonly<Record<IpFamily, string>> = { ipv4: '0.0.0.0', ipv6: '::1' }

/** ListRoutes: the routes of the main table, except default routes without a gateway. */
export function listRoutes(network: Network): ApiRoute[] {
  const names = new Map(network.links().map(({ index, name }) => [index, name]))
  return network
    .routes()
    .filter(({ destination, gateway }) => gateway !== undefined || destination.prefixLength > 0)
    .map(({ family, destination, gateway, linkIndex, source, scope, mtu }) => ({
      dest:
        gateway === undefined ? `${destination.address}/${destination.prefixLength}` : BEHIND_GATEWAY[family],
      gateway: gateway ?? '',
      device: (linkIndex === undefined ? undefined : names.get(linkIndex)) ?? '',
      source: source === undefined ? '' : `${source.address}/${source.prefixLength}`,
      scope,
      family: apiFamily(family),
      flags: 0,
      mtu: mtu ?? 0,
    }))
}
