import { AgentError } from '../../base/errors.ts'
import { type MessageField, messageFields } from '../../gen/message-fields.ts'

/**
 * The JSON that a rule gets, as Kata's agent writes it: fields by their proto names, and `null` for an absent message, oneof
 * or optional field. Bytes are an array of numbers, enums and 64-bit integers are numbers. The request is already decoded,
 * so no second decoder can read it differently. A field `unread` becomes `null`.
 */
export function checkInput(message: string, request: unknown, unread?: string): string {
  if (typeof request !== 'object' || request === null)
    throw new AgentError('INTERNAL', `${message}: not decoded`)
  return message === COPY_FILE ? copyFileJson(request) : messageJson(message, request, unread)
}

const MAX_BYTES = 1024

/** Bytes are costly to write as JSON. The field `unread` does not count, and is not looked at. */
export function hasLargeBytes(request: unknown, unread?: string): boolean {
  if (typeof request !== 'object' || request === null) return false
  return Object.keys(request).some((key) => {
    const value: unknown = key === unread ? undefined : Reflect.get(request, key)
    return value instanceof Uint8Array && value.length > MAX_BYTES
  })
}

interface Member {
  readonly name: string
  /** The name, quoted, and a colon. */
  readonly key: string
  readonly jsonOf: (message: object) => string
}

const members = new Map<string, readonly Member[]>()

function membersOf(message: string): readonly Member[] {
  const known = members.get(message)
  if (known !== undefined) return known
  const made = makeMembers(message)
  members.set(message, made)
  return made
}

/** The fields in their order, then the oneofs. */
function makeMembers(message: string): readonly Member[] {
  const fields = messageFields()[message]
  if (fields === undefined) throw new AgentError('INTERNAL', `${message}: not a known message`)
  const oneofs = new Set(fields.flatMap(({ oneof }) => (oneof === undefined ? [] : [oneof])))
  return [
    ...fields
      .filter(({ oneof }) => oneof === undefined)
      .map((field) => member(nameOf(field), (holder) => fieldJson(field, holder))),
    ...[...oneofs].map((oneof) => {
      const choices = fields.filter((field) => field.oneof === oneof)
      return member(oneof, (holder) => oneofJson(choices, holder))
    }),
  ]
}

function member(name: string, jsonOf: Member['jsonOf']): Member {
  return { name, key: `"${name}":`, jsonOf }
}

/** Kata's agent is written in Rust, where `type` is a reserved word. No other field's name is one. */
function nameOf({ name }: MessageField): string {
  return name === 'type' ? 'type_' : name
}

function messageJson(message: string, value: object, unread?: string): string {
  const all = membersOf(message)
  return `{${all.map(({ name, key, jsonOf }) => key + (name === unread ? 'null' : jsonOf(value))).join(',')}}`
}

function oneofJson(choices: readonly MessageField[], holder: object): string {
  const chosen = choices.find(({ property }) => Reflect.get(holder, property) !== undefined)
  return chosen === undefined ? 'null' : `{"${nameOf(chosen)}":${fieldJson(chosen, holder)}}`
}

function fieldJson({ property, message, isMap }: MessageField, holder: object): string {
  const value: unknown = Reflect.get(holder, property)
  if (Array.isArray(value)) return `[${value.map((item) => valueJson(item, message)).join(',')}]`
  if (isMap !== true || typeof value !== 'object' || value === null) return valueJson(value, message)
  const entries = Object.entries(value)
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${valueJson(item, message)}`).join(',')}}`
}

function valueJson(value: unknown, message: string | undefined): string {
  if (value === undefined) return 'null'
  if (typeof value === 'bigint') return String(value)
  if (value instanceof Uint8Array) return `[${value.join(',')}]`
  return typeof value === 'object' && value !== null && message !== undefined
    ? messageJson(message, value)
    : JSON.stringify(value)
}

const COPY_FILE = 'grpc.CopyFileRequest'

/** The kinds of files in `file_mode` (S_IFMT of inode(7)). */
const FILE_TYPES = new Map([
  [0o100000, 'Regular'],
  [0o040000, 'Directory'],
  [0o120000, 'Symlink'],
])

/** CopyFile's input has the type of the file in place of the data. */
function copyFileJson(request: object): string {
  const type = FILE_TYPES.get(Number(Reflect.get(request, 'fileMode')) & 0o170000) ?? 'Unknown'
  const target = type === 'Symlink' ? linkTarget(Reflect.get(request, 'data')) : null
  const [path, ...others] = membersOf(COPY_FILE)
    .filter(({ name }) => name !== 'data')
    .map(({ key, jsonOf }) => key + jsonOf(request))
  const kind = [`"file_type":"${type}"`, `"symlink_target":${JSON.stringify(target)}`]
  return `{${[path, ...kind, ...others].join(',')}}`
}

function linkTarget(data: unknown): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
      data instanceof Uint8Array ? data : undefined,
    )
  } catch (error) {
    throw new AgentError('INVALID_ARGUMENT', 'data: the target of the link is not UTF-8', { cause: error })
  }
}
