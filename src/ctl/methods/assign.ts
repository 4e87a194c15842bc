import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf'
import { messageOf } from '../../base/errors.ts'
import { FieldError, fieldNamed } from '../../client/json/fields.ts'
import { UsageError } from '../command.ts'
import { readInput } from './read-input.ts'

export interface Draft {
  [key: string]: Node
}

type Node = string | number | boolean | null | Node[] | Draft

/** Sets a path such as `process.args[0]=sh` or `annotations[key]=x`; no index appends. Throws {@link UsageError}. */
export function assign(message: DescMessage, json: Draft, word: string): void {
  const equals = word.indexOf('=')
  if (equals <= 0) throw new UsageError(`${JSON.stringify(word)}: not understood, want FIELD=VALUE`)
  const path = word.slice(0, equals)
  try {
    put(message, json, stepsOf(path), word.slice(equals + 1), '')
  } catch (error) {
    throw error instanceof FieldError ? new UsageError(error.message, { cause: error }) : error
  }
}

/** `a.b[0][key]`; keys in brackets may contain dots. */
function stepsOf(path: string): readonly string[] {
  const steps = path.match(/\[[^\]]*\]|[^.[\]]+/g)
  const whole = steps?.map((step, index) => (index > 0 && !step.startsWith('[') ? `.${step}` : step)).join('')
  if (steps === null || whole !== path)
    throw new FieldError(`${path}: not a path, want the form process.args[0]`)
  return steps
}

function put(message: DescMessage, json: Draft, steps: readonly string[], text: string, path: string): void {
  const [name = '', ...rest] = steps
  const at = path === '' ? name : `${path}.${name}`
  const field = fieldNamed(message, name, at)
  const key = field.jsonName
  if (field.fieldKind === 'list') {
    const list = listIn(json, key)
    const [bracket, ...inner] = rest
    const index = bracket === undefined ? list.length : indexOf(bracket, list.length, at)
    list[index] = element(field, list[index], inner, text, `${at}[${index}]`)
  } else if (field.fieldKind === 'map') {
    const [first, ...inner] = rest
    if (first === undefined) {
      json[key] = parsed(text, at)
      return
    }
    const entry = first.replace(/^\[(.*)\]$/, '$1')
    const map = draftIn(json, key)
    map[entry] = element(field, map[entry], inner, text, `${at}[${JSON.stringify(entry)}]`)
  } else json[key] = element(field, json[key], rest, text, at)
}

function element(
  field: DescField,
  before: Node | undefined,
  steps: readonly string[],
  text: string,
  path: string,
): Node {
  if (steps.length === 0) return valueFrom(field, text, path)
  if (field.message === undefined) throw new FieldError(`${path}: has no fields, want ${path}=VALUE`)
  const inner = isDraft(before) ? before : {}
  put(field.message, inner, steps, text, path)
  return inner
}

/** A message is JSON, and bytes are text, `hex:…`, `base64:…` or `file:PATH`. */
function valueFrom(field: DescField, text: string, path: string): Node {
  if (field.message !== undefined) return parsed(text, path)
  if (field.scalar !== ScalarType.BYTES) return text
  const [, kind = 'text', rest = ''] = /^(hex|base64|text|file):(.*)$/s.exec(text) ?? [
    undefined,
    'text',
    text,
  ]
  return kind === 'file' ? { base64: readInput(path, rest).toString('base64') } : { [kind]: rest }
}

function parsed(text: string, path: string): Node {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new FieldError(`${path}: ${messageOf(error)}, want JSON, or one FIELD=VALUE for each field in it`)
  }
}

function indexOf(bracket: string, length: number, path: string): number {
  const index = /^\[(\d{1,6})\]$/.exec(bracket)?.[1]
  if (index === undefined) throw new FieldError(`${path}${bracket}: want a number in the brackets`)
  if (Number(index) > length) throw new FieldError(`${path}${bracket}: want [${length}] first, without a gap`)
  return Number(index)
}

function listIn(json: Draft, key: string): Node[] {
  const before = json[key]
  if (Array.isArray(before)) return before
  const list: Node[] = []
  json[key] = list
  return list
}

function draftIn(json: Draft, key: string): Draft {
  const before = json[key]
  if (isDraft(before)) return before
  const draft: Draft = {}
  json[key] = draft
  return draft
}

function isDraft(node: Node | undefined): node is Draft {
  return typeof node === 'object' && node !== null && !Array.isArray(node)
}
