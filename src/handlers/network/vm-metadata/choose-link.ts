import type { Link } from '../../../os/network/network.ts'

/** ARPHRD_ETHER. */
const ETHERNET = 1

/** The link that leads to the host, and the others that could have been meant. */
export interface ChosenLink {
  readonly link: Link
  readonly others: readonly Link[]
}

/**
 * The link that VM metadata is about, which does not name one: that of this name or MAC address where one is configured
 * (`wanted`, else empty), else the first Ethernet of `links`, which are in the order of their indices. Cards come before
 * links without a device, such as bridges.
 */
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
