import { existsSync, readFileSync, statSync } from 'node:fs'
import type { RequestListener, ServerResponse } from 'node:http'
import { createServer } from 'node:net'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { prepareRootDisk, refuseUnfinishedDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'
import {
  answerImage,
  IMAGE,
  MIB,
  newPlace,
  QUICK,
  SHA256,
  serve,
  sha256Of,
} from '../../support/host-wing/image-server.ts'

const SERVING = { image: IMAGE, etag: '"one"' }
const LIMITS = { ...QUICK, tries: 4, imageBytes: 8 * MIB }

const GZIP = gzipSync(IMAGE)
const ZSTD = zstdCompressSync(IMAGE)
const BOMB = gzipSync(Buffer.alloc(9 * MIB))
/** zstd's frames that are skipped, of 64 KiB each. */
const NOTHING = Buffer.concat([Buffer.from('502a4d1800000100', 'hex'), Buffer.alloc(65_536)])

interface Wrong {
  readonly server: string
  readonly answer: RequestListener
  readonly code: string
  /** Behind the URL. */
  readonly reason: string | RegExp
  readonly idleMs?: number
}

/** Breaks the first connection after half of the image; the others are answered by `next`. */
function afterCut(next: (answer: ServerResponse, start: number) => void): RequestListener {
  return (request, answer) => {
    const start = Number(/\d+/.exec(request.headers.range ?? '')?.[0] ?? 0)
    if (start === 0) answerImage(request, answer, SERVING, 2 * MIB)
    else next(answer, start)
  }
}

/** As a server of HTTP/1.0 does, which closes the connection at the end. */
function sendUnframed(answer: ServerResponse, body: Buffer): void {
  answer.removeHeader('transfer-encoding')
  answer.write(body)
  answer.end()
}

const WRONG: readonly Wrong[] = [
  {
    server: 'has no image',
    answer: (_, answer) => void answer.writeHead(404).end(),
    code: 'NOT_FOUND',
    reason: 'answered 404, want the image',
  },
  {
    server: 'refuses',
    answer: (_, answer) => void answer.writeHead(403).end(),
    code: 'PERMISSION_DENIED',
    reason: 'answered 403, want the image',
  },
  {
    server: 'answers with another success',
    answer: (_, answer) => void answer.writeHead(204).end(),
    code: 'FAILED_PRECONDITION',
    reason: 'answered 204, want the image',
  },
  {
    server: 'sends a range that was not asked for',
    answer: (_, answer) => void answer.writeHead(206, { 'content-range': 'bytes 0-1/2' }).end('ab'),
    code: 'FAILED_PRECONDITION',
    reason: 'answered 206, want the image',
  },
  {
    server: 'fails for ever',
    answer: (_, answer) => void answer.writeHead(503).end(),
    code: 'UNAVAILABLE',
    reason: 'answered 503, after 4 tries',
  },
  {
    server: 'breaks every connection',
    answer: (request) => void request.socket.destroy(),
    code: 'UNAVAILABLE',
    reason: 'ECONNRESET, after 4 tries',
  },
  {
    server: 'never answers',
    answer: () => {},
    code: 'UNAVAILABLE',
    reason: 'no answer within 300 ms, after 4 tries',
    idleMs: 300,
  },
  {
    server: 'sends nothing after its headers',
    answer: (_, answer) => answer.writeHead(200, { 'content-length': MIB }).flushHeaders(),
    code: 'UNAVAILABLE',
    reason: 'sent 0 bytes in 300 ms, after 4 tries',
    idleMs: 300,
  },
  {
    server: 'sends a byte now and then',
    answer: (_, answer) => {
      const timer = setInterval(() => answer.write('x'), 20)
      answer.on('close', () => clearInterval(timer))
    },
    code: 'UNAVAILABLE',
    reason: /^sent \d+ bytes in 300 ms, after 4 tries$/,
    idleMs: 300,
  },
  {
    server: 'never ends',
    answer: (_, answer) => {
      const more = () => {
        while (answer.write(IMAGE));
      }
      answer.on('drain', more)
      more()
    },
    code: 'RESOURCE_EXHAUSTED',
    reason: `is larger than ${8 * MIB} bytes, the limit`,
  },
  {
    server: 'announces too much',
    answer: (_, answer) => {
      answer.writeHead(200, { 'content-length': 8 * MIB + 512 }).write(IMAGE)
    },
    code: 'RESOURCE_EXHAUSTED',
    reason: `is larger than ${8 * MIB} bytes, the limit`,
  },
  {
    server: 'sends few bytes that become many',
    answer: (_, answer) => void answer.end(BOMB),
    code: 'RESOURCE_EXHAUSTED',
    reason: `is larger than ${8 * MIB} bytes, the limit`,
  },
  {
    server: 'sends many bytes that become few',
    answer: (_, answer) => {
      answer.write(ZSTD)
      const more = () => {
        while (answer.write(NOTHING));
      }
      answer.on('drain', more)
      more()
    },
    code: 'RESOURCE_EXHAUSTED',
    reason: `is larger than ${8 * MIB} bytes, the limit`,
  },
  {
    server: 'sends fewer bytes than it announces',
    answer: (_, answer) => {
      answer.writeHead(200, { 'content-length': MIB }).write('x', () => answer.destroy())
    },
    code: 'UNAVAILABLE',
    reason: /, after 4 tries$/,
  },
  {
    server: 'ends in the middle of a chunk',
    answer: (_, answer) => void answer.write(IMAGE, () => answer.destroy()),
    code: 'UNAVAILABLE',
    reason: /, after 4 tries$/,
  },
  {
    server: 'has a shorter image after a cut',
    answer: afterCut((answer, start) => {
      answer.writeHead(206, { 'content-range': `bytes ${start}-${start + 1}/${start + 2}` }).end('ab')
    }),
    code: 'FAILED_PRECONDITION',
    reason: /^had 4194304 bytes and now has \d+$/,
  },
  {
    server: 'has no such range after a cut',
    answer: afterCut((answer) => void answer.writeHead(416).end()),
    code: 'UNAVAILABLE',
    reason: /416.*, after 4 tries$/,
  },
  {
    server: 'goes on at another place',
    answer: afterCut((answer, start) => {
      const range = `bytes ${start - 1}-${IMAGE.length - 1}/${IMAGE.length}`
      answer.writeHead(206, { 'content-range': range }).end(IMAGE.subarray(start - 1))
    }),
    code: 'FAILED_PRECONDITION',
    reason: /^answered bytes \d+-4194303\/4194304, want the bytes from \d+ on$/,
  },
  {
    server: 'goes on without saying where',
    answer: afterCut((answer) => void answer.writeHead(206).end('x')),
    code: 'FAILED_PRECONDITION',
    reason: /^answered no Content-Range, want the bytes from \d+ on$/,
  },
  {
    server: 'goes on with more than there is',
    answer: afterCut((answer, start) => {
      const range = `bytes ${start}-${IMAGE.length - 1}/${IMAGE.length}`
      answer.writeHead(206, { 'content-range': range, etag: '"one"' }).end(IMAGE)
    }),
    code: 'FAILED_PRECONDITION',
    reason: `sent more than ${IMAGE.length} bytes`,
  },
  {
    server: 'has another image each time',
    answer: (request, answer) => {
      answerImage(request, answer, { image: IMAGE, etag: `"${performance.now()}"` }, MIB)
    },
    code: 'UNAVAILABLE',
    reason: /, after 4 tries$/,
  },
  {
    server: 'compresses in a way of its own',
    answer: (_, answer) => void answer.writeHead(200, { 'content-encoding': 'br' }).end('x'),
    code: 'FAILED_PRECONDITION',
    reason: 'Content-Encoding br, want none',
  },
  {
    server: 'sends nothing',
    answer: (_, answer) => void answer.end(),
    code: 'FAILED_PRECONDITION',
    reason: 'is empty, want a disk',
  },
  {
    server: 'sends a page for people',
    answer: (_, answer) => void answer.end('<html>Please log in</html>'),
    code: 'FAILED_PRECONDITION',
    reason: '26 bytes, want a disk, which has a multiple of 512 bytes',
  },
  {
    server: 'sends half of an image without saying where it ends',
    answer: (_, answer) => sendUnframed(answer, IMAGE.subarray(0, 2 * MIB)),
    code: 'FAILED_PRECONDITION',
    reason: 'answered without Content-Length and without chunks, so that a cut is not seen',
  },
  {
    server: 'sends half of what gzip has made',
    answer: (_, answer) => void answer.end(GZIP.subarray(0, MIB)),
    code: 'FAILED_PRECONDITION',
    reason: 'gzip: unexpected end of file',
  },
  {
    server: 'sends half of what zstd has made',
    answer: (_, answer) => void answer.end(ZSTD.subarray(0, MIB)),
    code: 'FAILED_PRECONDITION',
    reason: 'zstd: unexpected end of file',
  },
  {
    server: 'sends damaged gzip',
    answer: (_, answer) => void answer.end(Buffer.from(GZIP).fill('x', 5000, 90_000)),
    code: 'FAILED_PRECONDITION',
    reason: /^gzip: /,
  },
  {
    server: 'sends something else behind gzip',
    answer: (_, answer) => void answer.end(Buffer.concat([GZIP, Buffer.alloc(MIB, 'x')])),
    code: 'FAILED_PRECONDITION',
    reason: 'gzip: incorrect header check',
  },
  {
    server: 'sends something else behind zstd',
    answer: (_, answer) => void answer.end(Buffer.concat([ZSTD, Buffer.alloc(MIB, 'x')])),
    code: 'FAILED_PRECONDITION',
    reason: /^zstd: /,
  },
]

describe.each(WRONG)('a server that $server', ({ answer, code, reason, idleMs = 30_000 }) => {
  it('is refused by name, and the disk does not boot', async () => {
    const { url } = await serve(answer)
    const place = newPlace()
    const text = url.replace('http://', 'http://anne:secret@')
    const error = await prepareRootDisk({
      url: `${text}?token=1`,
      ...place,
      limits: { ...LIMITS, idleMs },
    }).catch((e) => e)
    expect(error).toMatchObject({ name: 'AgentError', code })
    expect(error.message.startsWith(`${url}: `), error.message).toBe(true)
    expect(error.message.slice(url.length + 2)).toMatch(reason)
    // The disk has nothing, or is known to have a part.
    if (statSync(place.disk).size > 0) {
      await expect(refuseUnfinishedDisk(place)).rejects.toThrow(
        `${place.disk}: only a part of ${url} is on it`,
      )
    }
    if (existsSync(place.stateFile)) expect(readFileSync(place.stateFile, 'utf8')).not.toMatch(/secret|token/)
    // A good server overcomes it.
    const good = await serve((request, reply) => answerImage(request, reply, SERVING))
    await prepareRootDisk({ url: good.url, ...place })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
  })
})

describe('an image whose end is only that of its connection', () => {
  it('is accepted with a digest', async () => {
    const server = await serve((_, answer) => sendUnframed(answer, IMAGE))
    const url = `${server.url}#sha256=${SHA256}`
    expect(await prepareRootDisk({ url, ...newPlace() })).toEqual({ bytes: IMAGE.length, sha256: SHA256 })
  })
})

describe('an image with another digest', () => {
  it('is refused, and fetched anew by the next preparation', async () => {
    let image = Buffer.alloc(IMAGE.length, 'x')
    const server = await serve((request, answer) => answerImage(request, answer, { image, etag: '"same"' }))
    const [place, url] = [newPlace(), `${server.url}#sha256=${SHA256}`]
    const message = `${server.url}: sha256 ${sha256Of(image)}, want ${SHA256}`
    await expect(prepareRootDisk({ url, ...place, limits: QUICK })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message,
    })
    await expect(refuseUnfinishedDisk(place)).rejects.toThrow('only a part')
    image = IMAGE
    await prepareRootDisk({ url, ...place, limits: QUICK })
    expect(sha256Of(readFileSync(place.disk))).toBe(SHA256)
    expect(server.ranges).toEqual(['', ''])
  })
})

describe('a port without a server', () => {
  it('is UNAVAILABLE after all tries', async () => {
    const port = await freePort()
    const url = `http://127.0.0.1:${port}/image`
    await expect(prepareRootDisk({ url, ...newPlace(), limits: LIMITS })).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message: `${url}: ECONNREFUSED, after 4 tries`,
    })
  })
})

describe('a caller that gives up', () => {
  it('gets its reason at once, also while nothing comes', async () => {
    const giveUp = new AbortController()
    const reason = new Error('enough')
    const server = await serve((request, answer) => {
      answerImage(request, answer, { image: IMAGE, etag: '"one"' }, Number.POSITIVE_INFINITY)
      giveUp.abort(reason)
    })
    const options = { url: server.url, ...newPlace(), signal: giveUp.signal }
    await expect(prepareRootDisk(options)).rejects.toBe(reason)
    const silent = await serve(() => {})
    const later = new AbortController()
    const failed = expect(
      prepareRootDisk({ url: silent.url, ...newPlace(), signal: later.signal }),
    ).rejects.toBe(reason)
    later.abort(reason)
    await failed
  })
})

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
