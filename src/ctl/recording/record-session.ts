import { AgentError, StatusCode } from '../../base/errors.ts'
import type { Session } from '../../client/open-session.ts'
import { AgentServiceDefinition } from '../../gen/agent.ts'
import { HealthDefinition } from '../../gen/health.ts'
import { IntrospectionDefinition } from '../../gen/microvm/agent/v1/introspection.ts'

/** Decodes the messages of one method. */
interface Codec {
  readonly requestType: { decode(bytes: Uint8Array): object }
  readonly responseType: { decode(bytes: Uint8Array): object }
}

const CODECS: ReadonlyMap<string, Codec> = new Map(
  [AgentServiceDefinition, HealthDefinition, IntrospectionDefinition].flatMap(({ fullName, methods }) =>
    Object.values(methods).map((method): [string, Codec] => [`${fullName}/${method.name}`, method]),
  ),
)

/** The same session, which writes a line when it is opened and closed, and one for each call that has ended, in the form of test/fixtures/recordings. */
export function recorded(session: Session, write: (line: string) => void): Session {
  const began = performance.now()
  const now = () => Math.round((performance.now() - began) * 10) / 10
  const writeLine = (fields: object) => write(`${JSON.stringify(fields)}\n`)
  let stream = -1
  writeLine({ ms: now(), conn: 1, event: 'open' })
  return {
    close: () => {
      writeLine({ ms: now(), conn: 1, event: 'close' })
      session.close()
    },
    closed: session.closed,
    call: async (service, method, payload, options = {}) => {
      stream += 2
      const codec = CODECS.get(`${service}/${method}`)
      const sent = {
        ms: now(),
        conn: 1,
        stream,
        method: `${service}/${method}`,
        timeout_ms: options.timeoutMs ?? 0,
        metadata: options.metadata ?? {},
        request: plain(codec?.requestType.decode(payload) ?? {}),
        request_bytes: Buffer.from(payload).toString('base64'),
      }
      const answered = (fields: object) => writeLine({ ...sent, answered_ms: now(), ...fields })
      try {
        const answer = await session.call(service, method, payload, options)
        answered({ code: 0, message: '', response: plain(codec?.responseType.decode(answer) ?? {}) })
        return answer
      } catch (error) {
        if (error instanceof AgentError)
          answered({ code: StatusCode[error.code], message: error.message, response: null })
        throw error
      }
    },
  }
}

/** A message as recordings have it: 64-bit numbers are decimal texts, and bytes are base64. */
function plain(message: object): object {
  return JSON.parse(JSON.stringify(message, plainValue))
}

function plainValue(this: unknown, key: string, value: unknown): unknown {
  // JSON.stringify has made an object of a Buffer before it asks.
  const own: unknown = typeof this === 'object' && this !== null ? Reflect.get(this, key) : value
  if (typeof value === 'bigint') return value.toString()
  if (own instanceof Uint8Array) return { base64: Buffer.from(own).toString('base64') }
  return value
}
