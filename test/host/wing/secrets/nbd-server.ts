import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createSecureContext, TLSSocket } from 'node:tls'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

/** Signs certificates. Each is a file `NAME.pem`, with its key in `NAME.key`. */
export interface Authority {
  readonly folder: string
  /** The file with its own certificate. */
  readonly ca: string
  /** `days` may be negative: it has expired then. */
  sign(name: string, extensions: readonly string[], days?: number): void
}

export function makeAuthority(name: string): Authority {
  const folder = temporaryFolder()
  const at = (file: string) => join(folder, file)
  const openssl = (...words: readonly string[]) => execFileSync('openssl', words, { stdio: 'ignore' })
  const key = ['-nodes', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']
  const own = ['-subj', `/CN=${name}`, '-keyout', at('ca.key'), '-out', at('ca.pem'), '-days', '1']
  openssl('req', '-x509', ...key, ...own, '-addext', 'keyUsage=critical,keyCertSign')
  return {
    folder,
    ca: at('ca.pem'),
    sign: (of, extensions, days = 1) => {
      const files = ['-subj', `/CN=${of}`, '-keyout', at(`${of}.key`), '-out', at(`${of}.csr`)]
      openssl('req', '-new', ...key, ...files)
      writeFileSync(at('extensions'), ['keyUsage=digitalSignature', ...extensions].join('\n'))
      const by = [
        '-CA',
        at('ca.pem'),
        '-CAkey',
        at('ca.key'),
        '-CAcreateserial',
        '-extfile',
        at('extensions'),
      ]
      openssl('x509', '-req', '-in', at(`${of}.csr`), ...by, '-days', `${days}`, '-out', at(`${of}.pem`))
    },
  }
}

/** Serves a raw file as the export `disk` to clients with a certificate of the authority, which has signed `server`. */
export async function diskByNbd(
  path: string,
  { folder, ca }: Authority,
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const own = temporaryFolder()
  for (const [from, to] of [
    [ca, 'ca-cert.pem'],
    [join(folder, 'server.pem'), 'server-cert.pem'],
    [join(folder, 'server.key'), 'server-key.pem'],
  ] as const)
    writeFileSync(join(own, to), readFileSync(from))
  const port = await freePort()
  const credentials = `tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir=${own}`
  const place = ['-f', 'raw', '-x', 'disk', '-b', '127.0.0.1', '-p', `${port}`, '-t', '-e', '8']
  const words = [...place, '--object', credentials, '--tls-creds', 'tls', path]
  const server: ChildProcess = spawn('qemu-nbd', words, { stdio: 'ignore' })
  while (!(await isListening(port))) {
    if (server.exitCode !== null) throw new Error(`qemu-nbd ended with status ${server.exitCode}`)
    await sleep(50)
  }
  // Another process may have taken the port.
  if (server.exitCode !== null) throw new Error(`qemu-nbd ended with status ${server.exitCode}`)
  return { port, close: () => endChild(server, 'SIGKILL') }
}

/**
 * A server of NBD that has the certificate `server`, whatever its time, and ends once it has shown it: qemu-nbd refuses one that has
 * expired. The bytes are those of the handshake (doc/proto.md of the NBD project).
 */
export async function expiredNbd({
  folder,
}: Authority): Promise<{ readonly port: number; close(): Promise<void> }> {
  const [cert, key] = ['server.pem', 'server.key'].map((name) => readFileSync(join(folder, name)))
  const secureContext = createSecureContext({ ...(cert && { cert }), ...(key && { key }) })
  const server = createServer((socket) => {
    socket.on('error', () => {})
    const begin = () => new TLSSocket(socket, { isServer: true, secureContext }).on('error', () => {})
    // The client may leave before it.
    answer(socket, begin).catch(() => {})
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return { port, close: async () => void server.close() }
}

const STARTTLS = 5
const ACKNOWLEDGED = 1

async function answer(socket: Socket, begin: () => void): Promise<void> {
  const greeting = Buffer.from('NBDMAGICIHAVEOPT\0\x01', 'latin1')
  socket.write(greeting)
  let bytes = Buffer.alloc(0)
  // Four bytes of flags, then the option without data.
  while (bytes.length < 20) bytes = Buffer.concat([bytes, (await once(socket, 'data'))[0]])
  const reply = Buffer.alloc(20)
  reply.writeBigUInt64BE(0x0003_e889_0455_65a9n)
  reply.writeUInt32BE(STARTTLS, 8)
  reply.writeUInt32BE(ACKNOWLEDGED, 12)
  socket.write(reply)
  begin()
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  const isUp = await once(socket, 'connect').then(
    () => true,
    () => false,
  )
  socket.destroy()
  return isUp
}
