import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { afterEach } from 'vitest'
import { temporaryFolder } from '../temporary-folder.ts'

export const MIB = 1 << 20

/** 4 MiB, of which the second one is zeros. */
export const IMAGE = Buffer.concat([randomBytes(MIB), Buffer.alloc(MIB), randomBytes(2 * MIB)])
export const SHA256 = sha256Of(IMAGE)

export interface ImageServer {
  readonly url: string
  /** The Range of each request, '' without one. */
  readonly ranges: string[]
}

const closers: (() => void)[] = []

afterEach(() => {
  for (const close of closers.splice(0)) close()
})

/** Serves until the test ends; with a certificate, by https. */
export async function serve(listener: RequestListener, certificate?: Certificate): Promise<ImageServer> {
  const ranges: string[] = []
  const noted: RequestListener = (request, answer) => {
    ranges.push(request.headers.range ?? '')
    return listener(request, answer)
  }
  const server = certificate === undefined ? createServer(noted) : createTlsServer(certificate, noted)
  closers.push(() => {
    server.close()
    server.closeAllConnections()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  // What listen() has bound to an address and a port.
  const { port } = server.address() as AddressInfo
  return { url: `${certificate === undefined ? 'http' : 'https'}://127.0.0.1:${port}/image`, ranges }
}

export interface Certificate {
  readonly key: Buffer
  readonly cert: Buffer
}

export function makeCertificate(): Certificate {
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => `${temporaryFolder()}/${name}`) as [
    string,
    string,
  ]
  const words = [
    'req',
    '-x509',
    '-nodes',
    '-days',
    '1',
    '-subj',
    '/CN=127.0.0.1',
    '-keyout',
    key,
    '-out',
    cert,
  ]
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']
  execFileSync('openssl', [...words, ...curve, '-addext', 'subjectAltName=IP:127.0.0.1'], { stdio: 'ignore' })
  return { key: readFileSync(key), cert: readFileSync(cert) }
}

export interface Serving {
  readonly image: Buffer
  /** Strong, unless it begins with W/; without one there are no ranges. */
  readonly etag: string | undefined
}

/** Answers as a good server does, but breaks the connection after so many bytes. */
export function answerImage(
  request: IncomingMessage,
  answer: ServerResponse,
  { image, etag }: Serving,
  cutAfter = Number.POSITIVE_INFINITY,
): void {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
  const isPart = start > 0 && etag !== undefined && request.headers['if-range'] === etag
  const rest = isPart ? image.subarray(start) : image
  answer.writeHead(isPart ? 206 : 200, {
    'content-length': rest.length,
    ...(etag === undefined ? {} : { etag }),
    ...(isPart ? { 'content-range': `bytes ${start}-${image.length - 1}/${image.length}` } : {}),
  })
  if (cutAfter >= rest.length) return void answer.end(rest)
  answer.write(rest.subarray(0, cutAfter), () => answer.destroy())
}

export function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

export interface DiskPlace {
  readonly disk: string
  readonly stateFile: string
}

export function newPlace(): DiskPlace {
  const folder = temporaryFolder()
  return { disk: `${folder}/root.img`, stateFile: `${folder}/root.json` }
}

/** Waits that suit a test. */
export const QUICK = { firstRetryMs: 1, longestRetryMs: 5, checkpointBytes: MIB }
