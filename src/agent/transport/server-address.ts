import { AgentError } from '../../base/errors.ts'
import { VSOCK_CID } from '../../os/sockets/allow-list.ts'
import type { ListenAddress } from '../../os/sockets/sockets.ts'

/** The longest path or abstract name in the `sun_path` of a unix address (unix(7)). */
const MAX_UNIX_PATH_BYTES = 107

const FORMS = 'vsock://CID:PORT (CID -1 is any), unix://PATH, unix://@ABSTRACT or tcp://HOST:PORT'

/** Parses a `server_addr`. Throws INVALID_ARGUMENT `server address "…": …`. */
export function parseServerAddress(text: string): ListenAddress {
  const [scheme, rest] = splitScheme(text)
  const wrong = (reason: string) =>
    new AgentError('INVALID_ARGUMENT', `server address ${JSON.stringify(text)}: ${reason}`)
  switch (scheme) {
    case 'vsock':
      return parseVsock(rest, wrong)
    case 'unix':
      return parseUnix(rest, wrong)
    case 'tcp':
      return parseTcp(rest, wrong)
    default:
      throw wrong(`unknown form, want ${FORMS}`)
  }
}

type Wrong = (reason: string) => AgentError

function splitScheme(text: string): readonly [string, string] {
  const end = text.indexOf('://')
  return end < 0 ? ['', text] : [text.slice(0, end), text.slice(end + 3)]
}

function parseVsock(rest: string, wrong: Wrong): ListenAddress {
  const match = /^(-1|\d{1,10}):(\d{1,10})$/.exec(rest)
  if (match === null) throw wrong('invalid address, want vsock://CID:PORT with two numbers (CID -1 is any)')
  const cid = match[1] === '-1' ? VSOCK_CID.any : Number(match[1])
  const port = Number(match[2])
  if (cid > VSOCK_CID.any) throw wrong(`CID ${cid} out of range, want at most 2^32-1`)
  // 2^32-1 makes the kernel choose a port, which no host would know.
  if (port >= 0xffffffff) throw wrong(`port ${port} out of range, want at most 2^32-2`)
  return { kind: 'vsock', cid, port }
}

function parseUnix(path: string, wrong: Wrong): ListenAddress {
  if (path === '' || path === '@') throw wrong('empty path, want unix://PATH or unix://@NAME')
  if (path.includes('\0')) throw wrong('path has a NUL')
  const bytes = Buffer.byteLength(path)
  if (bytes > MAX_UNIX_PATH_BYTES)
    throw wrong(`path of ${bytes} bytes too long, want at most ${MAX_UNIX_PATH_BYTES}`)
  return { kind: 'unix', path }
}

function parseTcp(rest: string, wrong: Wrong): ListenAddress {
  const match = /^(?:\[([0-9a-fA-F:.]+(?:%[^\]\s/]+)?)\]|([^\s:/[\]@]+)):(\d{1,5})$/.exec(rest)
  const host = match?.[1] ?? match?.[2]
  if (host === undefined)
    throw wrong('invalid address, want tcp://HOST:PORT with an IPv6 address in brackets')
  const port = Number(match?.[3])
  if (port > 65535) throw wrong(`port ${port} out of range, want at most 65535`)
  return { kind: 'tcp', host, port }
}
