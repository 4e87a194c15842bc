import { UsageError } from '../command.ts'
import type { Draft } from '../methods/assign.ts'
import { parseObject, readText } from '../methods/request-words.ts'

export interface ReferenceCommand {
  readonly name: string
  /** The object of `json://` or `file://`. */
  readonly json: Draft
  readonly words: readonly string[]
}

/** Short keys of kata-agent-ctl. */
const SHORT_KEYS: Readonly<Record<string, string>> = { cid: 'container_id', sid: 'sandbox_id' }

/** Parses `Name`, `Name KEY=VALUE…`, `Name json://{…}` or `Name file:///PATH`. Throws {@link UsageError}. */
export function parseReferenceCommand(text: string): ReferenceCommand {
  const [, name, rest = ''] = /^\s*(\S+)\s*(.*?)\s*$/s.exec(text) ?? []
  if (name === undefined) throw new UsageError('empty command, want a name')
  if (rest.startsWith('json://')) return { name, json: parsed(rest.slice(7), rest), words: [] }
  if (rest.startsWith('file://')) return { name, json: parsed(readText(rest), rest), words: [] }
  const words = rest === '' ? [] : rest.split(/\s+/)
  return { name, json: {}, words: words.map(withLongKey) }
}

function parsed(json: string, word: string): Draft {
  const entries = Object.entries(parseObject(json, word))
  return Object.fromEntries(entries.map(([key, value]) => [SHORT_KEYS[key] ?? key, value]))
}

function withLongKey(word: string): string {
  const [key = ''] = word.split('=', 1)
  const long = SHORT_KEYS[key]
  return long === undefined ? word : `${long}${word.slice(key.length)}`
}
