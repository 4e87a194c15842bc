import { AgentError } from '../../../base/errors.ts'

/** A message from QEMU (QEMU's page "QMP Protocol Specification"), one JSON object per line. */
export type QmpMessage =
  | { readonly kind: 'greeting'; readonly version: string }
  | { readonly kind: 'return'; readonly id: number; readonly value: unknown }
  | {
      readonly kind: 'error'
      readonly id: number | undefined
      readonly errorClass: string
      readonly text: string
    }
  | { readonly kind: 'event'; readonly event: QmpEvent }

export interface QmpEvent {
  readonly name: string
  readonly data: Readonly<Record<string, unknown>>
}

export function encodeCommand(id: number, name: string, args: Readonly<Record<string, unknown>>): string {
  return `${JSON.stringify({ execute: name, arguments: args, id })}\n`
}

/** Parses one line from QEMU. Throws INTERNAL when it is not a QMP message. */
export function parseMessage(line: string): QmpMessage {
  const message = parseObject(line)
  if (isObject(message.QMP)) return { kind: 'greeting', version: versionOf(message.QMP) }
  if (typeof message.event === 'string') {
    return { kind: 'event', event: { name: message.event, data: isObject(message.data) ? message.data : {} } }
  }
  if (isObject(message.error)) {
    return {
      kind: 'error',
      id: typeof message.id === 'number' ? message.id : undefined,
      errorClass: String(message.error.class),
      text: String(message.error.desc),
    }
  }
  if ('return' in message && typeof message.id === 'number') {
    return { kind: 'return', id: message.id, value: message.return }
  }
  throw new AgentError('INTERNAL', `QMP: unknown message ${line.slice(0, 200)}`)
}

/** Splits a stream of bytes into lines. Empty lines are dropped. */
export class LineSplitter {
  #rest = ''
  readonly #decoder = new TextDecoder()

  /** The length of the line that has not ended yet. */
  get restLength(): number {
    return this.#rest.length
  }

  /** The lines that `chunk` completes, without their ends. */
  push(chunk: Uint8Array): readonly string[] {
    const pieces = `${this.#rest}${this.#decoder.decode(chunk, { stream: true })}`.split('\n')
    this.#rest = pieces.pop() ?? ''
    return pieces.map((piece) => piece.replace(/\r$/, '')).filter((piece) => piece !== '')
  }
}

function versionOf(greeting: Readonly<Record<string, unknown>>): string {
  const version = isObject(greeting.version) ? greeting.version.qemu : undefined
  return isObject(version) ? [version.major, version.minor, version.micro].join('.') : 'unknown'
}

function parseObject(line: string): Readonly<Record<string, unknown>> {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch (error) {
    throw new AgentError('INTERNAL', `QMP: not JSON: ${line.slice(0, 200)}`, { cause: error })
  }
  if (isObject(value)) return value
  throw new AgentError('INTERNAL', `QMP: not an object: ${line.slice(0, 200)}`)
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
