import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { messageOf } from '../../base/errors.ts'

/** The calls of one caller for one sandbox, in the order of sending. */
export interface Recording {
  /** The file name without `.jsonl`, such as `go-shim.ctr-run`. */
  readonly name: string
  readonly lines: readonly RecordedLine[]
}

export type RecordedLine = RecordedCall | ConnectionEvent | Cut

interface AnyLine {
  /** Counted from 1. */
  readonly line: number
}

export interface RecordedCall extends AnyLine {
  readonly kind: 'call'
  /** Milliseconds since the beginning of the recording. */
  readonly sentMs: number
  readonly connection: number
  readonly stream: number
  readonly service: string
  readonly method: string
  /** 0 without a limit. */
  readonly timeoutNano: bigint
  readonly metadata: Readonly<Record<string, string>>
  /** Decoded: 64-bit numbers are decimal texts, bytes are `{ base64 }`. */
  readonly request: JsonObject
  /** undefined for most writes to stdin. */
  readonly requestBytes: Buffer | undefined
  readonly answer: RecordedAnswer | undefined
}

export interface RecordedAnswer {
  readonly atMs: number
  readonly code: number
  readonly message: string
  /** undefined for a failure, and for metrics, whose text was not recorded. */
  readonly response: JsonObject | undefined
}

export interface ConnectionEvent extends AnyLine {
  readonly kind: 'open' | 'close'
  readonly sentMs: number
  readonly connection: number
}

/** Calls that were left out of the recording. */
export interface Cut extends AnyLine {
  readonly kind: 'cut'
  readonly calls: number
}

export type Json = string | number | boolean | null | readonly Json[] | JsonObject
export interface JsonObject {
  readonly [key: string]: Json | undefined
}

/** Throws an error that names the file and the line when a line is truncated or lacks a field. */
export function readRecording(path: string): Recording {
  return { name: basename(path, '.jsonl'), lines: parseLines(path, readFileSync(path, 'utf8')) }
}

/** `path` is for the errors. */
export function parseLines(path: string, text: string): readonly RecordedLine[] {
  const lines = text
    .split('\n')
    .map((line, index) => ({ line, number: index + 1 }))
    .filter(({ line }) => line !== '')
    .map(({ line, number }) => {
      try {
        return parseLine(number, objectOf('the line', JSON.parse(line)))
      } catch (error) {
        throw new Error(`${path}, line ${number}: ${messageOf(error)}, want a whole line`, { cause: error })
      }
    })
  return inSentOrder(lines)
}

/** Recorders write a call when it is answered, so an earlier call may come on a later line. */
function inSentOrder(lines: readonly RecordedLine[]): readonly RecordedLine[] {
  let before = 0
  const timed = lines.map((line) => {
    if (line.kind !== 'cut') before = line.sentMs
    return { line, ms: before }
  })
  return timed.toSorted((one, other) => one.ms - other.ms).map(({ line }) => line)
}

function parseLine(line: number, fields: JsonObject): RecordedLine {
  if (fields.cut !== undefined) return { kind: 'cut', line, calls: numberOf('cut', fields.cut) }
  const sentMs = numberOf('ms', fields.ms)
  const connection = numberOf('conn', fields.conn)
  if (fields.event === 'open' || fields.event === 'close')
    return { kind: fields.event, line, sentMs, connection }
  const [service = '', method = ''] = textOf('method', fields.method).split('/')
  const bytes = fields.request_bytes
  return {
    kind: 'call',
    line,
    sentMs,
    connection,
    stream: numberOf('stream', fields.stream),
    service,
    method,
    timeoutNano: BigInt(Math.round(numberOf('timeout_ms', fields.timeout_ms ?? 0) * 1e6)),
    metadata: textsOf('metadata', fields.metadata ?? {}),
    request: objectOf('request', fields.request),
    requestBytes: bytes === undefined ? undefined : Buffer.from(textOf('request_bytes', bytes), 'base64'),
    answer: fields.answered_ms === undefined ? undefined : answerOf(fields),
  }
}

function answerOf({ answered_ms, code, message, response }: JsonObject): RecordedAnswer {
  return {
    atMs: numberOf('answered_ms', answered_ms),
    code: numberOf('code', code),
    message: textOf('message', message ?? ''),
    response: response === undefined || response === null ? undefined : objectOf('response', response),
  }
}

/** undefined without the field, and when only the size was recorded. */
export function bytesOf(field: Json | undefined): Buffer | undefined {
  if (field === undefined) return undefined
  const { base64 } = objectOf('bytes', field)
  return base64 === undefined ? undefined : Buffer.from(textOf('base64', base64), 'base64')
}

function objectOf(name: string, value: unknown): JsonObject {
  if (!isObject(value)) throw new Error(`${name}: not an object`)
  return value
}

/** The fields come from JSON.parse, so they are JSON. */
function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function textsOf(name: string, value: Json): Readonly<Record<string, string>> {
  const texts = Object.entries(objectOf(name, value))
  return Object.fromEntries(texts.map(([key, text]) => [key, textOf(`${name}.${key}`, text)]))
}

export function textOf(name: string, value: Json | undefined): string {
  if (typeof value !== 'string') throw new Error(`${name}: not a text`)
  return value
}

export function numberOf(name: string, value: Json | undefined): number {
  if (typeof value !== 'number') throw new Error(`${name}: not a number`)
  return value
}
