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
   * host's ends of `links`; with one, these are addresses of the bridge.
   */
  connect(name: string, bridge: string, links: readonly TapLink[]): Promise<void>
}

/** For one call of ip(8). */
const IP_MS = 10_000

export function hostLinks(): HostLinks {
  return {
    exists: (name) => existsSync(`/sys/class/net/${name}`),
    isRoutable: () =>
      linesOf('/proc/net/route').some((line) => /^\S+\t0{8}\t\S+\t\S+\t\S+\t\S+\t\S+\t0{8}\t/.test(line)) ||
      linesOf('/proc/net/ipv6_route').some((line) => /^0{32} 00 /.test(line) && !/\blo$/.test(line)),
    connect: async (name, bridge, links) => {
      const ip = (...words: readonly string[]) => promisify(execFile)('ip', words, { timeout: IP_MS })
      const master = bridge === '' ? ['nomaster'] : ['master', bridge]
      try {
        await ip('link', 'set', 'dev', name, ...master, 'up')
        // The kernel adds the route to an IPv6 peer only with an address that comes after the link is up.
        for (const { ip: guest, peerIp } of bridge === '' ? links : [])
          await ip(
            'address',
            'replace',
            peerIp,
            'peer',
            guest,
            'dev',
            name,
            ...(guest.includes(':') ? ['nodad'] : []),
          )
      } catch (error) {
        throw new AgentError('FAILED_PRECONDITION', `interface ${name}: ${messageOf(error)}`, {
          cause: error,
        })
      }
    },
  }
}

/** None where the kernel lacks the family. */
function linesOf(path: string): readonly string[] {
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n') : []
}
