import type { GetNetworkResponse } from '../../gen/microvm/agent/v1/introspection.ts'
import type { NetworkSubject } from '../../handlers/network/network-record.ts'
import type { IntrospectionContext } from './context.ts'

/** RTPROT_KERNEL of rtnetlink(7). */
const BY_KERNEL = 2

/** A setting that no agent has made comes from the kernel, or is unknown when the record is incomplete. */
export function getNetwork({ sandbox: { os }, network: record }: IntrospectionContext): GetNetworkResponse {
  const settings = record.settings()
  const unset = record.isWhole ? 'kernel' : 'unknown'
  const sourceOf = (kind: NetworkSubject, subject: string) =>
    settings.find((setting) => setting.kind === kind && setting.subject === subject)?.source ?? unset
  const addresses = os.network.addresses()
  const links = os.network.links()
  const nameOf = (wanted: number | undefined) => links.find(({ index }) => index === wanted)?.name ?? ''
  return {
    interfaces: links.map(({ index, name, hardwareAddress, mtu, up }) => ({
      index,
      name,
      hardwareAddress,
      mtu,
      isUp: up,
      addresses: addresses
        .filter(({ linkIndex }) => linkIndex === index)
        .map(({ address, prefixLength }) => `${address}/${prefixLength}`)
        .map((address) => ({ address, source: sourceOf('address', address) })),
      source: sourceOf('interface', name),
    })),
    routes: os.network.routes().map(({ destination, gateway = '', linkIndex, protocol }) => {
      const text = `${destination.address}/${destination.prefixLength}`
      const source = protocol === BY_KERNEL ? 'kernel' : sourceOf('route', text)
      return { destination: text, gateway, device: nameOf(linkIndex), source }
    }),
    settings: [...settings],
  }
}
