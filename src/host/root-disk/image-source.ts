import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { type ImageUrl, redirectTarget, shownUrl } from './image-url.ts'
import type { RootDiskLimits } from './limits.ts'

/** One answer of a server, or an open file. */
export interface ImagePart {
  /** Of buffers. */
  readonly body: Readable
  /** Of the whole image, when it is known. */
  readonly totalBytes: number | undefined
  /** A strong ETag, a Last-Modified, or a file's inode, size and time; undefined when a part cannot be asked for. */
  readonly validator: string | undefined
}

/** Where to go on: the part behind `position` of the image that the server called `validator`. */
export interface Resumption {
  readonly position: number
  readonly validator: string
}

/** Opens an image. Throws {@link Interrupted} for what another try may overcome. */
export type OpenImage = (resumption: Resumption | undefined, signal: AbortSignal) => Promise<ImagePart>

/** The connection failed in a way that another try may overcome. */
export class Interrupted extends Error {}

/** The image behind the URL is another one than before, or it cannot be continued: it begins anew. */
export class ImageChanged extends Error {}

/** Opens images of an http or https URL by GET. Each opening begins at the URL itself, because redirects may expire. */
export function httpSource(
  image: ImageUrl,
  limits: RootDiskLimits,
  ca: string | Buffer | undefined,
): OpenImage {
  return async (resumption, signal) => {
    let url = image.url
    for (let redirects = 0; ; redirects++) {
      const answer = await get(url, resumption, { ca, signal, idleMs: limits.idleMs })
      if (!REDIRECTS.has(answer.statusCode ?? 0)) {
        const part = partOf(url, answer, resumption)
        if (part.totalBytes !== undefined || image.sha256 !== undefined || hasEnd(answer)) return part
        answer.destroy()
        throw refused(
          shownUrl(url),
          'answered without Content-Length and without chunks, so that a cut is not seen',
        )
      }
      answer.destroy()
      if (redirects === limits.redirects) {
        throw refused(
          image.shown,
          `more than ${limits.redirects} redirects, the last one to ${shownUrl(url)}`,
        )
      }
      url = redirectTarget(url, answer.headers.location)
    }
  }
}

/** Whether the end of the body differs from the end of its connection. */
function hasEnd({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || /chunked\s*$/i.test(headers['transfer-encoding'] ?? '')
}

const REDIRECTS = new Set([301, 302, 303, 307, 308])

/** Answers with which a server asks for another try. */
const RETRIED = new Set([408, 425, 429, 500, 502, 503, 504])

const RETRIED_ERRNOS = new Set([
  ...['ECONNRESET', 'ECONNREFUSED', 'ECONNABORTED', 'ETIMEDOUT', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'],
  ...['EHOSTUNREACH', 'ENETUNREACH', 'EAI_AGAIN'],
])

/** The encodings that leave the bytes of the image as they are, or compress them in a way that is found by its magic. */
const ENCODINGS = new Set(['identity', 'gzip', 'x-gzip', 'zstd'])

interface GetOptions {
  readonly ca: string | Buffer | undefined
  readonly signal: AbortSignal
  readonly idleMs: number
}

/** Returns once the headers are there. The signal also ends the body. */
async function get(
  url: URL,
  resumption: Resumption | undefined,
  { ca, signal, idleMs }: GetOptions,
): Promise<IncomingMessage> {
  const { request } = await (url.protocol === 'https:' ? import('node:https') : import('node:http'))
  const range = resumption && { range: `bytes=${resumption.position}-`, 'if-range': resumption.validator }
  const headers = { 'accept-encoding': 'identity', 'user-agent': 'microvm', ...range }
  const sent = request(url, { agent: false, headers, signal, ...(ca === undefined ? {} : { ca }) })
  const late = setTimeout(() => sent.destroy(new Interrupted(`no answer within ${idleMs} ms`)), idleMs)
  try {
    return await new Promise((resolve, reject) => {
      sent.on('response', resolve).on('error', reject).end()
    })
  } catch (error) {
    throw connectionError(url, error, signal)
  } finally {
    clearTimeout(late)
  }
}

function partOf(url: URL, answer: IncomingMessage, resumption: Resumption | undefined): ImagePart {
  try {
    return checkedPart(url, answer, resumption)
  } catch (error) {
    answer.destroy()
    throw error
  }
}

function checkedPart(url: URL, answer: IncomingMessage, resumption: Resumption | undefined): ImagePart {
  const { statusCode: status = 0, headers } = answer
  const encoding = headers['content-encoding'] ?? 'identity'
  const validator = validatorOf(answer)
  if (RETRIED.has(status)) throw new Interrupted(`answered ${status}`)
  if (resumption !== undefined && (status === 200 || status === 416))
    throw new ImageChanged(`answered ${status} to a range`)
  if (status !== (resumption === undefined ? 200 : 206)) throw statusError(url, status)
  if (!ENCODINGS.has(encoding)) throw refused(shownUrl(url), `Content-Encoding ${encoding}, want none`)
  if (resumption === undefined) {
    const length = headers['content-length']
    return { body: answer, totalBytes: length === undefined ? undefined : Number(length), validator }
  }
  if (validator !== undefined && validator !== resumption.validator) {
    throw new ImageChanged('has another ETag or Last-Modified')
  }
  const [, start, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers['content-range'] ?? '') ?? []
  if (Number(start) !== resumption.position) {
    const got = headers['content-range'] ?? 'no Content-Range'
    throw refused(shownUrl(url), `answered ${got}, want the bytes from ${resumption.position} on`)
  }
  return {
    body: answer,
    totalBytes: total === '*' ? undefined : Number(total),
    validator: resumption.validator,
  }
}

function validatorOf({ headers }: IncomingMessage): string | undefined {
  const { etag } = headers
  return etag?.startsWith('"') ? etag : headers['last-modified']
}

function statusError(url: URL, status: number): AgentError {
  const text = `${shownUrl(url)}: answered ${status}, want the image`
  if (status === 404 || status === 410) return new AgentError('NOT_FOUND', text)
  if (status === 401 || status === 403) return new AgentError('PERMISSION_DENIED', text)
  return new AgentError('FAILED_PRECONDITION', text)
}

/** The error of a connection: {@link Interrupted} when another try may overcome it. */
export function connectionError(url: URL, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason
  if ([Interrupted, ImageChanged, AgentError].some((known) => error instanceof known)) return error
  if (RETRIED_ERRNOS.has(errnoOf(error) ?? '')) return new Interrupted(errnoOf(error))
  return new AgentError('UNAVAILABLE', `${shownUrl(url)}: ${messageOf(error)}`, { cause: error })
}

function refused(shown: string, what: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `${shown}: ${what}`)
}
