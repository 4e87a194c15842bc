import { createHash } from 'node:crypto'
import { AgentError } from '../../base/errors.ts'

export interface ImageUrl {
  /** Without its fragment. */
  readonly url: URL
  /** For errors, logs and the record: without user, password, query and fragment. */
  readonly shown: string
  /** SHA-256 of the URL without user, password and fragment. A query may be secret, so that no record has it as text. */
  readonly identity: string
  /** Of the bytes at the URL, from the fragment `#sha256=HEX`. */
  readonly sha256: string | undefined
}

const SCHEMES = ['http:', 'https:', 'file:']

/** Throws INVALID_ARGUMENT for what is no URL of an image. */
export function parseImageUrl(text: string): ImageUrl {
  if (!URL.canParse(text)) throw wrong('initial_image.url', 'is not a URL, want http, https or file')
  const url = new URL(text)
  const shown = shownUrl(url)
  if (!SCHEMES.includes(url.protocol)) throw wrong(shown, `scheme ${url.protocol}, want http, https or file`)
  if (url.protocol === 'file:') checkFileUrl(url, shown)
  const sha256 = digestOf(url.hash, shown)
  url.hash = ''
  const identity = new URL(url)
  identity.username = ''
  identity.password = ''
  return { url, shown, identity: createHash('sha256').update(identity.href).digest('hex'), sha256 }
}

export function shownUrl(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname}`
}

/** Where an answer of `from` leads. Throws FAILED_PRECONDITION for a target that is refused. */
export function redirectTarget(from: URL, location: string | undefined): URL {
  const refused = (what: string) => new AgentError('FAILED_PRECONDITION', `${shownUrl(from)}: ${what}`)
  if (location === undefined || !URL.canParse(location, from.href)) throw refused('redirects to no URL')
  const target = new URL(location, from)
  if (target.protocol !== 'https:' && target.protocol !== 'http:') {
    throw refused(`redirects to scheme ${target.protocol}, want http or https`)
  }
  if (from.protocol === 'https:' && target.protocol === 'http:') {
    throw refused(`redirects to ${shownUrl(target)}, want https as before`)
  }
  return target
}

function checkFileUrl(url: URL, shown: string): void {
  if (url.host !== '') throw wrong(shown, 'has a host, want file:///PATH')
  if (/%2f|%00/i.test(url.pathname)) throw wrong(shown, 'has an encoded / or NUL')
  try {
    decodeURIComponent(url.pathname)
  } catch {
    throw wrong(shown, 'has a % that encodes no character')
  }
}

function digestOf(fragment: string, shown: string): string | undefined {
  if (fragment === '') return undefined
  const digest = /^#sha256=([0-9a-f]{64})$/i.exec(fragment)?.[1]
  if (digest === undefined) throw wrong(shown, 'unknown fragment, want #sha256= and 64 hexadecimal digits')
  return digest.toLowerCase()
}

function wrong(subject: string, what: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `${subject}: ${what}`)
}
