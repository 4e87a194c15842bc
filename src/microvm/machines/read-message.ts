import { readFileSync, statSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { messageOf } from '../../base/errors.ts'
import { fileFailure } from '../../client/files/file-failure.ts'
import { describedMessage } from '../../client/json/described-types.ts'
import { FieldError, type Json } from '../../client/json/fields.ts'
import { encodeJson } from '../../client/json/from-json.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { argument, type MachineContext } from './command.ts'

/** The daemon takes 4 MiB, and the JSON of a message is hardly larger than this. */
const MAX_INPUT_BYTES = 8 << 20

/** Several times as deep as any message. */
const MAX_DEPTH = 64

/**
 * Reads the file of the argument or option `from`, or stdin for `-`, as the JSON form of a message of the package microvm.instance.v1, or
 * as the same in TOML. Throws {@link UsageError} that names the file and the field.
 */
export async function readMessage<Message>(
  context: MachineContext,
  name: string,
  type: { decode(bytes: Uint8Array): Message },
  from = 'FILE',
): Promise<Message> {
  const { shown, text } = await readInput(context, from)
  if (isDeep(text)) throw new UsageError(`${shown}: nested deeper than ${MAX_DEPTH}`)
  try {
    const json = isToml(shown) ? await parseToml(text) : JSON.parse(text)
    return type.decode(encodeJson(describedMessage(`microvm.instance.v1.${name}`), json))
  } catch (error) {
    const isJson = error instanceof FieldError
    throw new UsageError(
      `${shown}: ${isJson ? '' : `not ${isToml(shown) ? 'TOML' : 'JSON'}: `}${firstLine(error)}`,
      { cause: error },
    )
  }
}

/** Whether a file is TOML, which its name says. */
export function isToml(path: string): boolean {
  return path.endsWith('.toml')
}

/** The value of TOML, in which dates are texts. Throws with the place of a fault. */
export async function parseToml(text: string): Promise<Json> {
  const { parse } = await import('smol-toml')
  return JSON.parse(JSON.stringify(parse(text, { maxDepth: MAX_DEPTH })))
}

/** Where a parser shows the place, further lines do. */
export function firstLine(error: unknown): string {
  return messageOf(error).split('\n')[0] ?? ''
}

/** The parser takes a gigabyte for as many brackets as may come. */
function isDeep(text: string): boolean {
  let [depth, isInString] = [0, false]
  for (let at = 0; at < text.length && depth <= MAX_DEPTH; at += 1) {
    const character = text[at]
    if (isInString && character === '\\') at += 1
    else if (character === '"') isInString = !isInString
    else if (isInString) continue
    else if (character === '[' || character === '{') depth += 1
    else if (character === ']' || character === '}') depth -= 1
  }
  return depth > MAX_DEPTH
}

/** The text of the file that an argument names, or of stdin for `-`, and what messages call it. */
export async function readInput(
  context: MachineContext,
  name: string,
): Promise<{ readonly shown: string; readonly text: string }> {
  const path = argument(context, name)
  if (path === '-') return { shown: 'stdin', text: await streamText(context.stdio.stdin) }
  return { shown: path, text: fileText(path) }
}

/** Reads a file or a named pipe. */
function fileText(path: string): string {
  try {
    if (statSync(path).size > MAX_INPUT_BYTES) throw tooLarge(path)
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new UsageError(fileFailure(path, error), { cause: error })
  }
}

async function streamText(source: Readable): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of source) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > MAX_INPUT_BYTES) throw tooLarge('stdin')
  }
  return Buffer.concat(chunks).toString()
}

function tooLarge(shown: string): UsageError {
  return new UsageError(`${shown}: larger than ${MAX_INPUT_BYTES} bytes`)
}
