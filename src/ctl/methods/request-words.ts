import type { Readable } from 'node:stream'
import type { DescMessage } from '@bufbuild/protobuf'
import { messageOf } from '../../base/errors.ts'
import { FieldError, type Json } from '../../client/json/fields.ts'
import { encodeJson } from '../../client/json/from-json.ts'
import { UsageError } from '../command.ts'
import { assign, type Draft } from './assign.ts'
import { MAX_INPUT_BYTES, readInput } from './read-input.ts'

/** Encodes the words `FIELD=VALUE`, `json://…`, `file://…`, `{…}`, or `-` for stdin. */
export async function encodeWords(
  message: DescMessage,
  words: readonly string[],
  stdin: Readable,
): Promise<Uint8Array> {
  const json: Draft = {}
  for (const word of words) {
    const text = await jsonText(word, stdin)
    if (text === undefined) assign(message, json, word)
    else Object.assign(json, parseObject(text, word))
  }
  return encodeRequest(message, json)
}

/** Throws {@link UsageError} that names an unknown or wrong field. */
export function encodeRequest(message: DescMessage, json: Json): Uint8Array {
  try {
    return encodeJson(message, json)
  } catch (error) {
    throw error instanceof FieldError ? new UsageError(error.message, { cause: error }) : error
  }
}

/** undefined for `FIELD=VALUE`. */
async function jsonText(word: string, stdin: Readable): Promise<string | undefined> {
  if (word.startsWith('json://')) return word.slice('json://'.length)
  if (word.startsWith('{')) return word
  if (word.startsWith('file://')) return readText(word)
  return word === '-' ? await readAll(stdin) : undefined
}

export function readText(address: string): string {
  const path = address.slice('file://'.length)
  return readInput(path, path).toString()
}

async function readAll(stdin: Readable): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of stdin) {
      chunks.push(Buffer.from(chunk))
      bytes += chunk.length
      if (bytes > MAX_INPUT_BYTES) throw new Error(`more than ${MAX_INPUT_BYTES} bytes`)
    }
  } catch (error) {
    throw new UsageError(`stdin: ${messageOf(error)}`, { cause: error })
  }
  if (bytes === 0) throw new UsageError('stdin: empty, want the request as JSON')
  return Buffer.concat(chunks).toString()
}

/** Throws {@link UsageError} that begins with the word. */
export function parseObject(text: string, word: string): Draft {
  const name = word.length > 40 ? `${word.slice(0, 40)}…` : word
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new UsageError(`${name}: ${messageOf(error)}`, { cause: error })
  }
  if (!isDraft(value)) throw new UsageError(`${name}: not an object, want {…}`)
  return value
}

/** JSON.parse creates no other values inside. */
function isDraft(value: unknown): value is Draft {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
