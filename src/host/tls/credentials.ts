import { X509Certificate } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { createSecureContext, type PeerCertificate } from 'node:tls'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'

/** Of a host, as certificates and controllers have it. */
export const HOST_ID = /^[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?$/

/** The common name of a controller's certificate; no host may be called so. */
export const CONTROLLER = 'controller'

/** Paths of files in PEM. Others must not read the key. */
export interface CredentialFiles {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

/** By what a host or a controller shows others who it is, and knows them. */
export interface Credentials {
  /** Texts in PEM. */
  readonly pem: { readonly ca: string; readonly cert: string; readonly key: string }
  readonly files: CredentialFiles
  readonly id: string
}

/** A peer that vanishes is noticed so long after it has last spoken, and 10 s more for the kernel's probes. */
export const KEEP_ALIVE_MS = 5000

/** Of both sides. */
export const TLS = { minVersion: 'TLSv1.3', ALPNProtocols: ['h2'] } as const

/** Who has called over TLS. */
export interface Peer {
  readonly role: 'host' | 'controller'
  /** The common name of its certificate. */
  readonly id: string
  /** The address that it has called from. */
  readonly address: string
}

/** Reads the files of `id`. Throws FAILED_PRECONDITION naming the one that is wrong: others would refuse this one. */
export async function readCredentials(
  given: CredentialFiles & { readonly id: string },
): Promise<Credentials> {
  const { ca, cert, id, key } = given
  const fail = (path: string, text: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
  const read = (path: string) =>
    readFile(path, 'utf8').catch((error) => {
      throw fail(path, errnoOf(error) ?? messageOf(error))
    })
  const [authority, own, secret] = await Promise.all([read(ca), read(cert), read(key)])
  if (((await stat(key)).mode & 0o077) !== 0) throw fail(key, 'others can read it, want mode 0600')
  const [issuer, certificate] = [parsed(authority), parsed(own)]
  if (issuer === undefined) throw fail(ca, 'no certificate in PEM')
  if (certificate === undefined) throw fail(cert, 'no certificate in PEM')
  const name = commonName(certificate.subject)
  if (name !== id) throw fail(cert, `the certificate of ${JSON.stringify(name)}, want ${id}`)
  if (certificate.checkHost(id, { subject: 'never' }) === undefined)
    throw fail(cert, `has no DNS name ${id}, want it`)
  const now = new Date()
  if (certificate.validToDate < now) throw fail(cert, `expired on ${certificate.validTo}`)
  if (!certificate.verify(issuer.publicKey)) throw fail(cert, `signed by another than that of ${ca}`)
  try {
    createSecureContext({ cert: own, key: secret })
    return { pem: { ca: authority, cert: own, key: secret }, files: { ca, cert, key }, id }
  } catch (error) {
    throw fail(key, `not the key of ${cert}: ${messageOf(error)}`)
  }
}

function parsed(text: string): X509Certificate | undefined {
  try {
    return new X509Certificate(text)
  } catch {
    return undefined
  }
}

/** Of a subject, as node:crypto prints it: one field a line. */
function commonName(subject: string): string | undefined {
  return /^CN=(.*)$/m.exec(subject)?.[1]
}

/** Who shows a certificate that the authority has signed. Throws PERMISSION_DENIED for one that is no host's and no controller's. */
export function peerOf({ raw }: Pick<PeerCertificate, 'raw'>, address = ''): Peer {
  const certificate = new X509Certificate(raw)
  const name = commonName(certificate.subject) ?? ''
  if (!HOST_ID.test(name) || certificate.checkHost(name, { subject: 'never' }) === undefined)
    throw new AgentError(
      'PERMISSION_DENIED',
      `certificate of ${JSON.stringify(name.slice(0, 64))}: no name of a host that is a DNS name of it, too`,
    )
  return { role: name === CONTROLLER ? 'controller' : 'host', id: name, address }
}
