import { AgentError } from '../../base/errors.ts'

export type Address =
  | { readonly kind: 'vsock'; readonly cid: number; readonly port: number }
  /** A path, or `@NAME` in the abstract namespace. */
  | { readonly kind: 'unix'; readonly path: string }
  /** The socket of a VMM that expects the guest's port first (Firecracker's page on vsock). */
  | { readonly kind: 'hvsock'; readonly path: string; readonly port: number }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  /** The agent of an instance, by the socket of its daemon. No text is parsed to it. */
  | { readonly kind: 'instance'; readonly socket: string; readonly key: string }

const AGENT_PORT = 1024

export const ADDRESS_FORMS =
  'vsock://CID:PORT, unix://PATH, unix://@NAME, hvsock://PATH:PORT or tcp://HOST:PORT'

/** The longest path or abstract name in the `sun_path` of a unix address (unix(7)). */
const MAX_UNIX_PATH_BYTES = 107
const LARGEST_CID = 2 ** 32 - 2

/** Parses an address; the default port is {@link AGENT_PORT}. Throws INVALID_ARGUMENT `address "…": …`. */
export function parseAddress(text: string): Address {
  const wrong: Wrong = (reason) =>
    new AgentError('INVALID_ARGUMENT', `address ${JSON.stringify(text)}: ${reason}`)
  const [, scheme = '', rest = ''] = /^([a-z]+):\/\/(.*)$/s.exec(text) ?? []
  switch (scheme) {
    case 'vsock':
      return parseVsock(rest, wrong)
    case 'unix':
      return { kind: 'unix', path: unixPath(rest, wrong) }
    case 'hvsock': {
      const [, path = '', port] = /^(.*?)(?::([^/:]*))?$/s.exec(rest) ?? []
      return { kind: 'hvsock', path: unixPath(path, wrong), port: portOf(port, 2 ** 32 - 2, wrong) }
    }
    case 'tcp':
      return parseTcp(rest, wrong)
    default:
      throw wrong(`unknown form, want ${ADDRESS_FORMS}`)
  }
}

export function addressText(address: Address): string {
  switch (address.kind) {
    case 'vsock':
      return `vsock://${address.cid}:${address.port}`
    case 'unix':
      return `unix://${address.path}`
    case 'hvsock':
      return `hvsock://${address.path}:${address.port}`
    case 'tcp':
      return `tcp://${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`
    case 'instance':
      return `microvm://${address.key}`
    default:
      return address satisfies never
  }
}

type Wrong = (reason: string) => AgentError

function parseVsock(rest: string, wrong: Wrong): Address {
  const match = /^(\d{1,10})(?::([^:]*))?$/.exec(rest)
  if (match === null) throw wrong('no guest, want vsock://CID:PORT with two numbers')
  const cid = Number(match[1])
  if (cid > LARGEST_CID) throw wrong(`CID ${cid} out of range, want at most 2^32-2`)
  return { kind: 'vsock', cid, port: portOf(match[2], 2 ** 32 - 2, wrong) }
}

function unixPath(path: string, wrong: Wrong): string {
  if (path === '' || path === '@') throw wrong('empty path, want a path or @NAME')
  if (path.includes('\0')) throw wrong('path has a NUL')
  const bytes = Buffer.byteLength(path)
  if (bytes > MAX_UNIX_PATH_BYTES)
    throw wrong(`path of ${bytes} bytes too long, want at most ${MAX_UNIX_PATH_BYTES}`)
  return path
}

function parseTcp(rest: string, wrong: Wrong): Address {
  const match = /^(?:\[([0-9a-fA-F:.]+(?:%[^\]\s/]+)?)\]|([^\s:/[\]@]+))(?::([^:]*))?$/.exec(rest)
  const host = match?.[1] ?? match?.[2]
  if (host === undefined) throw wrong('no host, want tcp://HOST:PORT with an IPv6 address in brackets')
  return { kind: 'tcp', host, port: portOf(match?.[3], 65_535, wrong) }
}

function portOf(text: string | undefined, largest: number, wrong: Wrong): number {
  if (text === undefined) return AGENT_PORT
  if (!/^\d{1,10}$/.test(text)) throw wrong(`port ${JSON.stringify(text)}: not a number`)
  const port = Number(text)
  if (port < 1 || port > largest) throw wrong(`port ${port} out of range, want 1 to ${largest}`)
  return port
}
