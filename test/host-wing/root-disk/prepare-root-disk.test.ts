import { randomBytes } from 'node:crypto'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import type { ImageProgress } from '../../../src/host/root-disk/disk-writing.ts'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'
import {
  answerImage,
  type Certificate,
  IMAGE,
  MIB,
  makeCertificate,
  newPlace,
  QUICK,
  SHA256,
  serve,
  sha256Of,
} from '../../support/host-wing/image-server.ts'

const PREPARED = { bytes: IMAGE.length, sha256: SHA256 }
const DIGEST = `#sha256=${SHA256}`
const SERVING = { image: IMAGE, etag: '"one"' }

let certificate: Certificate
beforeAll(() => {
  certificate = makeCertificate()
})

describe('an image by http', () => {
  it('is written to a new disk, and found there by the next preparation', async () => {
    const server = await serve((_, answer) => void answer.end(IMAGE))
    const place = newPlace()
    const progress: ImageProgress[] = []
    const url = `${server.url}${DIGEST}`
    expect(await prepareRootDisk({ url, ...place, progress: (now) => progress.push(now) })).toEqual(PREPARED)
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    // The zeros are a hole.
    expect(statSync(place.disk).blocks * 512).toBeLessThan(IMAGE.length)
    expect(progress.at(-1)).toEqual({
      receivedBytes: IMAGE.length,
      totalBytes: IMAGE.length,
      writtenBytes: IMAGE.length,
    })
    await refuseUnfinishedDisk(place)
    expect(await prepareRootDisk({ url, ...place })).toEqual(PREPARED)
    expect(server.ranges).toEqual([''])
  })

  it('is refused for a disk that was prepared from another URL, or without this digest', async () => {
    const server = await serve((_, answer) => void answer.end(IMAGE))
    const place = newPlace()
    await prepareRootDisk({ url: server.url, ...place })
    await expect(prepareRootDisk({ url: `${server.url}2?token=1`, ...place })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: was prepared from ${server.url}, not from ${server.url}2`,
    })
    await expect(prepareRootDisk({ url: `${server.url}?token=2`, ...place })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: was prepared from ${server.url}, not from ${server.url} with this query`,
    })
    await expect(prepareRootDisk({ url: `${server.url}${DIGEST}`, ...place })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${place.disk}: was prepared from ${server.url} with no digest, want sha256 ${SHA256}`,
    })
    expect(server.ranges).toEqual([''])
  })

  it('is found on a disk that was prepared from another URL with the same digest', async () => {
    const server = await serve((_, answer) => void answer.end(IMAGE))
    const place = newPlace()
    await prepareRootDisk({ url: `${server.url}?token=1${DIGEST}`, ...place })
    for (const url of [`${server.url}?token=2${DIGEST}`, `http://mirror/image${DIGEST}`])
      expect(await prepareRootDisk({ url, ...place })).toEqual(PREPARED)
    expect(server.ranges).toEqual([''])
  })

  it.each([
    ['gzip', gzipSync(IMAGE)],
    ['gzip in two members', Buffer.concat([gzipSync(IMAGE.subarray(0, MIB)), gzipSync(IMAGE.subarray(MIB))])],
    ['zstd', zstdCompressSync(IMAGE)],
    ['gzip in small members', inParts(gzipSync)],
    ['zstd in small frames', inParts(zstdCompressSync)],
    [
      'pzstd, which puts the length before each frame',
      inParts((part) => behindLength(zstdCompressSync(part))),
    ],
    [
      'zstd in two frames',
      Buffer.concat([zstdCompressSync(IMAGE.subarray(0, MIB)), zstdCompressSync(IMAGE.subarray(MIB))]),
    ],
  ])('may be compressed by %s, and is continued where the connection broke', async (_, packed) => {
    const serving = { image: packed, etag: '"packed"' }
    const server = await serve((request, answer) => answerImage(request, answer, serving, 2 * MIB))
    const place = newPlace()
    const digest = sha256Of(packed)
    const prepared = await prepareRootDisk({
      url: `${server.url}#sha256=${digest}`,
      ...place,
      limits: QUICK,
    })
    expect(prepared).toEqual({ bytes: IMAGE.length, sha256: digest })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    expect(server.ranges[0]).toBe('')
    expect(server.ranges.slice(1).every((range) => /^bytes=[1-9]/.test(range))).toBe(true)
    expect(server.ranges.length).toBeGreaterThan(1)
  })
})

describe('an image by https', () => {
  it('goes on by range when the connection breaks three times', async () => {
    let cuts = 3
    const server = await serve(
      (request, answer) => answerImage(request, answer, SERVING, cuts-- > 0 ? MIB : undefined),
      certificate,
    )
    const place = newPlace()
    const options = { url: `${server.url}${DIGEST}`, ...place, limits: QUICK, ca: certificate.cert }
    expect(await prepareRootDisk(options)).toEqual(PREPARED)
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    expect(server.ranges).toHaveLength(4)
    expect(server.ranges.slice(1).every((range) => /^bytes=[1-9]/.test(range))).toBe(true)
  })

  it('is refused with a certificate that nobody trusts', async () => {
    const server = await serve((_, answer) => void answer.end(IMAGE), certificate)
    await expect(prepareRootDisk({ url: server.url, ...newPlace() })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: expect.stringContaining(`${server.url}: self-signed certificate`),
    })
    expect(server.ranges).toEqual([])
  })
})

describe('an image that cannot be continued', () => {
  it.each<[string, (request: number) => { image: Buffer; etag: string | undefined }]>([
    ['has another ETag', (request) => ({ image: IMAGE, etag: `"${request}"` })],
    ['has a weak ETag', () => ({ image: IMAGE, etag: 'W/"one"' })],
    ['has neither ETag nor time', () => ({ image: IMAGE, etag: undefined })],
  ])('begins anew when it %s', async (_, servingOf) => {
    let requests = 0
    const server = await serve((request, answer) => {
      requests += 1
      const cutAfter = requests < 3 ? MIB + 1000 : undefined
      answerImage(request, answer, servingOf(Math.min(requests, 3)), cutAfter)
    })
    const place = newPlace()
    const options = { url: `${server.url}${DIGEST}`, ...place, limits: QUICK }
    expect(await prepareRootDisk(options)).toEqual(PREPARED)
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
  })

  it('leaves nothing of its first version', async () => {
    const first = randomBytes(IMAGE.length)
    let requests = 0
    const server = await serve((request, answer) => {
      requests += 1
      if (requests === 1) return answerImage(request, answer, { image: first, etag: '"first"' }, 3 * MIB)
      return answerImage(request, answer, SERVING)
    })
    const place = newPlace()
    await prepareRootDisk({ url: server.url, ...place, limits: QUICK })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    expect(server.ranges[1]).toMatch(/^bytes=/)
  })

  it('goes on by its time of change when it has no ETag', async () => {
    const time = 'Thu, 26 Nov 2026 05:00:00 GMT'
    const server = await serve((request, answer) => {
      if (request.headers['if-range'] === time)
        return answerImage(request, answer, { image: IMAGE, etag: time })
      answer.writeHead(200, { 'content-length': IMAGE.length, 'last-modified': time })
      answer.write(IMAGE.subarray(0, 2 * MIB), () => answer.destroy())
    })
    await prepareRootDisk({ url: `${server.url}${DIGEST}`, ...newPlace(), limits: QUICK })
    expect(server.ranges).toHaveLength(2)
  })
})

describe('a redirect', () => {
  const to = (location: string): RequestListener => {
    return (_, answer) => void answer.writeHead(302, { location }).end()
  }

  it('is followed, also from http to https', async () => {
    const last = await serve((request, answer) => answerImage(request, answer, SERVING), certificate)
    const middle = await serve(to(last.url))
    const first = await serve(to(middle.url))
    const options = { url: `${first.url}${DIGEST}`, ...newPlace(), ca: certificate.cert }
    expect(await prepareRootDisk(options)).toEqual(PREPARED)
  })

  it('does not take the password to another server', async () => {
    const seen: (string | undefined)[] = []
    const last = await serve((request, answer) => {
      seen.push(request.headers.authorization)
      answer.end(IMAGE)
    })
    const first = await serve((request, answer) => {
      seen.push(request.headers.authorization)
      to(last.url)(request, answer)
    })
    await prepareRootDisk({ url: first.url.replace('http://', 'http://anne:secret@'), ...newPlace() })
    expect(seen).toEqual([`Basic ${Buffer.from('anne:secret').toString('base64')}`, undefined])
  })

  it.each([
    ['file:///etc/passwd', 'redirects to scheme file:, want http or https'],
    ['ftp://127.0.0.1/image', 'redirects to scheme ftp:, want http or https'],
    ['http://', 'redirects to no URL'],
    ['/image', 'more than 5 redirects, the last one to URL'],
  ])('to %s is refused', async (location, reason) => {
    const server = await serve(to(location))
    await expect(prepareRootDisk({ url: `${server.url}?token=1`, ...newPlace() })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${server.url}: ${reason.replace('URL', server.url)}`.replace(`no ${server.url}`, 'no URL'),
    })
  })

  it('from https to http is refused', async () => {
    const server = await serve(to('http://127.0.0.1:1/image'), certificate)
    const options = { url: server.url, ...newPlace(), ca: certificate.cert }
    await expect(prepareRootDisk(options)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `${server.url}: redirects to http://127.0.0.1:1/image, want https as before`,
    })
  })
})

describe('an image by file', () => {
  it('is written to a disk with a size, which keeps it', async () => {
    const place = newPlace()
    const image = `${place.disk}.image`
    writeFileSync(image, IMAGE)
    writeFileSync(place.disk, Buffer.concat([Buffer.alloc(MIB), randomBytes(5 * MIB)]))
    expect(await prepareRootDisk({ url: `file://${image}${DIGEST}`, ...place })).toEqual(PREPARED)
    const disk = readFileSync(place.disk)
    expect(disk.length).toBe(6 * MIB)
    expect(sha256Of(disk.subarray(0, IMAGE.length))).toBe(SHA256)
  })
})

function inParts(compress: (part: Buffer) => Buffer): Buffer {
  const parts = Array.from({ length: 256 }, (_, index) =>
    IMAGE.subarray(index * 16_384, (index + 1) * 16_384),
  )
  return Buffer.concat(parts.map(compress))
}

/** A frame behind a skippable one of 4 bytes. */
function behindLength(frame: Buffer): Buffer {
  const head = Buffer.from('502a4d180400000000000000', 'hex')
  head.writeUInt32LE(frame.length, 8)
  return Buffer.concat([head, frame])
}
