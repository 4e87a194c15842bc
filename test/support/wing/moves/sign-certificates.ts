import { execFileSync } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Credentials } from '../../../../src/host/tls/credentials.ts'

/** Signs certificates of hosts. Each is a file `NAME.pem`, with its key in `NAME.key`. */
export interface Authority {
  readonly folder: string
  /** The file with its own certificate. */
  readonly ca: string
  /** `days` may be negative: it has expired then. */
  sign(name: string, extensions?: readonly string[], days?: number): void
  pemOf(name: string): Credentials['pem']
}

/** An authority of this name, with certificates of `hosts`, in the folder. */
export function signCertificates(folder: string, name: string, hosts: readonly string[]): Authority {
  const at = (file: string) => join(folder, file)
  const openssl = (...words: readonly string[]) => execFileSync('openssl', words, { stdio: 'ignore' })
  const key = ['-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']
  const own = ['-subj', `/CN=${name}`, '-keyout', at('ca.key'), '-out', at('ca.pem'), '-days', '1']
  openssl('req', '-x509', ...key, ...own, '-addext', 'keyUsage=critical,keyCertSign')
  const sign: Authority['sign'] = (of, extensions = [`subjectAltName=DNS:${of}`], days = 1) => {
    const files = ['-subj', `/CN=${of}`, '-keyout', at(`${of}.key`), '-out', at(`${of}.csr`)]
    openssl('req', '-new', ...key, ...files)
    chmodSync(at(`${of}.key`), 0o600)
    const uses = ['keyUsage=digitalSignature', 'extendedKeyUsage=serverAuth,clientAuth']
    writeFileSync(at('extensions'), [...uses, ...extensions].join('\n'))
    const by = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial', '-extfile', at('extensions')]
    openssl('x509', '-req', '-in', at(`${of}.csr`), ...by, '-days', `${days}`, '-out', at(`${of}.pem`))
  }
  for (const each of hosts) sign(each)
  const read = (file: string) => readFileSync(at(file), 'utf8')
  const pemOf = (of: string) => ({ ca: read('ca.pem'), cert: read(`${of}.pem`), key: read(`${of}.key`) })
  return { folder, ca: at('ca.pem'), sign, pemOf }
}
