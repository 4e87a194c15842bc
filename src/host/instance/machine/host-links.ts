import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { TapLink } from './tap-links.ts'

/** The network interfaces of this host. */
export interface HostLinks {
  exists(name: string): boolean
  /** Whether an interface has a default route. */
  isRoutable(): boolean
  /**
   * Makes the interface a port of `bridge`, or of none when that is empty, and sets it up. Without a bridge it gets the
   * host's ends of `links`, and the guest's ends a route and a neighbour entry; with one, these are addresses of the bridge.
   * A bridge keeps its own hardware address: it takes the lowest of its ports', and the interface has a high one.
   */
  connect(name: string, place: TapPlace): Promise<void>
}

interface TapPlace {
  readonly bridge: string
  readonly links: readonly TapLink[]
  /** Hardware address of the guest's card; '' for a tap that no card has. */
  readonly mac: string
}

/**
 * Of the host's end of each link without a bridge. A guest remembers it, and finds it again on the host that it has moved to and as a
 * clone, whose own address is another.
 */
const HOST_MAC = 'fe:ff:ff:ff:ff:ff'

/** For one call of ip(8). */
const IP_MS = 10_000

export function hostLinks(): HostLinks {
  return {
    exists: (name) => existsSync(`/sys/class/net/${name}`),
    isRoutable: () =>
      linesOf('/proc/net/route').some((line) => /^\S+\t0{8}\t\S+\t\S+\t\S+\t\S+\t\S+\t0{8}\t/.test(line)) ||
      linesOf('/proc/net/ipv6_route').some((line) => /^0{32} 00 /.test(line) && !/\blo$/.test(line)),
    connect: async (name, { bridge, links, mac }) => {
      const ip = (...words: readonly string[]) => promisify(execFile)('ip', words, { timeout: IP_MS })
      const own = bridge === '' ? links : []
      const master = bridge === '' ? ['nomaster'] : ['master', bridge]
      try {
        const address = bridge === '' ? HOST_MAC : portMac(mac === '' ? addressOf(name) : mac)
        await ip('link', 'set', 'dev', name, 'address', address, ...master, 'up')
        // The kernel adds the route to an IPv6 peer only with an address that comes after the link is up.
        for (const { ip: guest, peerIp } of own) {
          const noCheck = guest.includes(':') ? ['nodad'] : []
          await ip('address', 'replace', peerIp, 'peer', guest, 'dev', name, ...noCheck)
          if (mac !== '')
            await ip('neighbour', 'replace', guest, 'lladdr', mac, 'dev', name, 'nud', 'reachable')
        }
      } catch (error) {
        throw new AgentError('FAILED_PRECONDITION', `interface ${name}: ${messageOf(error)}`, {
          cause: error,
        })
      }
    },
  }
}

/** Of a bridge's port, from that of the guest's card, whose own it must not be. */
function portMac(mac: string): string {
  // Locally administered, as any of QEMU's is with another first byte.
  return `${/^fe/i.test(mac) ? 'fa' : 'fe'}${mac.slice(2)}`
}

function addressOf(name: string): string {
  return readFileSync(`/sys/class/net/${name}/address`, 'utf8').trim()
}

/** None where the kernel lacks the family. */
function linesOf(path: string): readonly string[] {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n') : []
}
