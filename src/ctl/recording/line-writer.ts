import { messageOf } from '../../base/errors.ts'
import { codecsOf, plainMessage } from './codecs.ts'
import type { RecordingFile } from './recording-file.ts'

export interface SentCall {
  readonly connection: number
  readonly stream: number
  readonly service: string
  readonly method: string
  readonly timeoutMs: number
  readonly metadata: Readonly<Record<string, string>>
  readonly payload: Uint8Array
}

/** A failure has a message, a success has a payload. */
export interface GivenAnswer {
  readonly code: number
  readonly message: string
  readonly payload: Uint8Array | undefined
}

/** Writes one line for each answered call, as in test/fixtures/recordings. */
export class LineWriter {
  readonly #write: (line: string) => void
  readonly #began: number

  constructor({ endMs, write }: Pick<RecordingFile, 'endMs' | 'write'>) {
    this.#write = write
    this.#began = performance.now() - endMs
  }

  connection(connection: number, event: 'open' | 'close'): void {
    this.#line({ ms: this.#now(), conn: connection, event })
  }

  /** The returned function writes the line. */
  call(sent: SentCall): (answer: GivenAnswer | undefined) => void {
    const { connection, metadata, method, payload, service, stream, timeoutMs } = sent
    const codecs = codecsOf(service, method)
    const line = {
      ms: this.#now(),
      conn: connection,
      stream,
      method: `${service}/${method}`,
      timeout_ms: timeoutMs,
      metadata,
      request: decoded(codecs?.requestType, payload),
      request_bytes: Buffer.from(payload).toString('base64'),
    }
    return (answer) => {
      if (answer === undefined) this.#line(line)
      else {
        const { code, message, payload: response } = answer
        const answered = { answered_ms: this.#now(), code, message }
        this.#line({
          ...line,
          ...answered,
          ...(response !== undefined && { response: decoded(codecs?.responseType, response) }),
        })
      }
    }
  }

  #now(): number {
    return Math.round((performance.now() - this.#began) * 1000) / 1000
  }

  #line(fields: object): void {
    this.#write(`${JSON.stringify(fields)}\n`)
  }
}

function decoded(type: { decode(bytes: Uint8Array): object } | undefined, bytes: Uint8Array): object {
  try {
    return type === undefined ? {} : plainMessage(type.decode(bytes))
  } catch (error) {
    return { undecodable: messageOf(error) }
  }
}
