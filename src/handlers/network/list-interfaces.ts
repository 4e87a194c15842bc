import type { Interface } from '../../gen/types.ts'
import type { Network } from '../../os/network/network.ts'
import { apiFamily } from './check-fields.ts'

/** ListInterfaces (spec G.3): every link with its addresses. */
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
