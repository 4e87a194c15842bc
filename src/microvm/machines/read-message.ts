import { readFileSync, statSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { messageOf } from '../../base/errors.ts'
import { fileFailure } from '../../client/files/file-failure.ts'
import { describedMessage } from '../../client/json/described-types.ts'
import { FieldError, type Json } from '../../client/json/fields.ts'
import { encodeJson } from '../../client/json/from-json.ts'
import { readDocument } from '../../host/machine/document/document.ts'
import { parseYaml } from '../../host/machine/document/parse-yaml.ts'
import { isObject } from '../../host/machine/document/shape.ts'
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
  return await readMessageOf(await readInput(context, from), name, type)
}

/** The same for a text that was read. */
export async function readMessageOf<Message>(
  { shown, text }: Input,
  name: string,
  type: { decode(bytes: Uint8Array): Message },
): Promise<Message> {
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

/** A document of kind VM, in place of a message. */
export interface GivenDocument {
  /** As the daemon reads it. */
  readonly text: string
  readonly name: string | undefined
  readonly labels: Readonly<Record<string, string>>
}

/** The document that a file has; undefined for a file without a kind. Throws {@link UsageError} that names file and field. */
export async function documentOf({ shown, text }: Input): Promise<GivenDocument | undefined> {
  try {
    const value = isDeep(text) ? undefined : await anyValue(shown, text)
    if (!isObject(value) || value.kind === undefined) return undefined
    const { labels, name } = readDocument(value)
    return { text: await documentText({ shown, text }), name, labels }
  } catch (error) {
    throw new UsageError(`${shown}: ${firstLine(error)}`, { cause: error })
  }
}

/** Whether a file has features of a document, in place of a message. */
export async function isFeatures({ shown, text }: Input): Promise<boolean> {
  const value = isDeep(text) ? undefined : await anyValue(shown, text)
  return isObject(value) && ('storage' in value || 'network' in value)
}

/** The text of a document as the daemon reads it. */
export async function documentText({ shown, text }: Input): Promise<string> {
  return isToml(shown) ? JSON.stringify(await parseToml(text)) : text
}

/** Undefined for what is no JSON or TOML, which the reader of messages tells. */
async function anyValue(shown: string, text: string): Promise<unknown> {
  const parse = isToml(shown) ? parseToml : /^\s*\{/.test(text) ? JSON.parse : undefined
  if (parse === undefined) return parseYaml(text)
  try {
    return await parse(text)
  } catch {
    return undefined
  }
}

/** Whether a file is TOML, which its name says. */
export function isToml(path: string): boolean {
  return path.endsWith('.toml')
}

/** The value of TOML, in which dates are texts. Throws with the place of a fault. */
export async function parseToml(text: string): Promise<Json> {
  const { parse, TomlError } = await import('smol-toml')
  try {
    return JSON.parse(JSON.stringify(parse(text, { maxDepth: MAX_DEPTH })))
  } catch (error) {
    if (!(error instanceof TomlError)) throw error
    throw new Error(`${firstLine(error)} at line ${error.line}, column ${error.column}`, { cause: error })
  }
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

/** A text, and what messages call its file. */
export interface Input {
  readonly shown: string
  readonly text: string
}

/** The text of the file that an argument names, or of stdin for `-`, and what messages call it. */
export async function readInput(context: MachineContext, name: string): Promise<Input> {
  return await inputOf(context, argument(context, name))
}

/** The same for the file at `path`. */
export async function inputOf({ stdio }: Pick<MachineContext, 'stdio'>, path: string): Promise<Input> {
  if (path === '-') return { shown: 'stdin', text: await streamText(stdio.stdin) }
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
