import { createHash, randomBytes } from 'node:crypto'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close()
    server.closeAllConnections()
  }
})

const IMAGE = Buffer.concat([randomBytes(1 << 20), Buffer.alloc(1 << 20), randomBytes(3 << 20)])
const SHA256 = sha256Of(IMAGE)

describe('an image by http', () => {
  it('is written to a new disk, and found there by the next preparation', async () => {
    let requests = 0
    const url = await serve((_, answer) => {
      requests += 1
      answer.end(IMAGE)
    })
    const place = newPlace()
    const prepared = { bytes: IMAGE.length, sha256: undefined }
    expect(await prepareRootDisk({ url, ...place })).toEqual(prepared)
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    // The zeros are a hole.
    expect(statSync(place.disk).blocks * 512).toBeLessThan(IMAGE.length)
    await refuseUnfinishedDisk(place)
    expect(await prepareRootDisk({ url, ...place })).toEqual(prepared)
    expect(requests).toBe(1)
  })

  it.each([
    ['gzip', gzipSync(IMAGE)],
    ['zstd', zstdCompressSync(IMAGE)],
  ])('may be compressed by %s', async (_, packed) => {
    const url = await serve((_, answer) => void answer.end(packed))
    const place = newPlace()
    const digest = sha256Of(packed)
    expect(await prepareRootDisk({ url: `${url}#sha256=${digest}`, ...place })).toEqual({
      bytes: IMAGE.length,
      sha256: digest,
    })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
  })
})

describe('an image by file', () => {
  it('is written to a disk with a size, which keeps it', async () => {
    const place = newPlace()
    const image = `${place.disk}.image`
    writeFileSync(image, IMAGE)
    writeFileSync(place.disk, randomBytes(6 << 20))
    const url = `file://${image}`
    expect(await prepareRootDisk({ url, ...place })).toEqual({
      bytes: IMAGE.length,
      sha256: undefined,
    })
    const disk = readFileSync(place.disk)
    expect(disk.length).toBe(6 << 20)
    expect(sha256Of(disk.subarray(0, IMAGE.length))).toBe(SHA256)
  })
})

function newPlace(): { readonly disk: string; readonly stateFile: string } {
  const folder = temporaryFolder()
  return { disk: `${folder}/root.img`, stateFile: `${folder}/root.json` }
}

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  // What listen() has bound to an address and a port.
  const { port } = server.address() as AddressInfo
  return `http://127.0.0.1:${port}/image`
}

function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}
