import { createHash } from 'node:crypto'
import { AgentError } from '../../base/errors.ts'

/**
 * The key of an instance, or of a component of a specification, made by {@link specKey}: a UUID (lower case, with
 * hyphens), for objects that a control plane knows by it, or a name.
 */
export type SpecKey = string & { readonly __specKey: true }

const MAX_KEY_BYTES = 128

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
/** With hyphens, in braces or as a URN; and the 32 digits alone. */
const UUID_NOTATIONS = [
  /^([\da-f]{8})-([\da-f]{4})-([\da-f]{4})-([\da-f]{4})-([\da-f]{12})$/i,
  /^\{([\da-f]{8})-([\da-f]{4})-([\da-f]{4})-([\da-f]{4})-([\da-f]{12})\}$/i,
  /^urn:uuid:([\da-f]{8})-([\da-f]{4})-([\da-f]{4})-([\da-f]{4})-([\da-f]{12})$/i,
  /^([\da-f]{8})([\da-f]{4})([\da-f]{4})([\da-f]{4})([\da-f]{12})$/i,
]

/**
 * Makes a key of `text`, a UUID where it can be one. A key is its own text: `specKey(key) === key`. Throws
 * INVALID_ARGUMENT when `text` is neither a UUID nor a name.
 */
export function specKey(text: string): SpecKey {
  const uuid = UUID_NOTATIONS.map((notation) => notation.exec(text)).find((match) => match !== null)
  const fault = uuid === undefined ? faultOfName(text) : undefined
  if (fault !== undefined) {
    throw new AgentError('INVALID_ARGUMENT', `key ${shownKey(text)}: ${fault}`)
  }
  // The only place that makes keys: the brand stands for the check above.
  return (uuid?.slice(1).join('-').toLowerCase() ?? text) as SpecKey
}

function faultOfName(text: string): string | undefined {
  const bytes = Buffer.byteLength(text)
  if (bytes < 1 || bytes > MAX_KEY_BYTES) return `${bytes} bytes, want 1 to ${MAX_KEY_BYTES}`
  // Lone surrogates would all become the same character on the wire.
  if (/[\p{Cc}/]/u.test(text) || !text.isWellFormed()) return 'has a control character or "/"'
  // A JavaScript object, which messages are decoded to, cannot have this property.
  return text === '__proto__' ? 'reserved' : undefined
}

/** The key for a message, cut so that an error stays short. */
function shownKey(text: string): string {
  return JSON.stringify(text.length > MAX_KEY_BYTES ? `${text.slice(0, MAX_KEY_BYTES)}…` : text)
}

/** Whether the key is the UUID of an object. */
export function isUuid(key: SpecKey): boolean {
  return UUID.test(key)
}

/** The name of an instance's folder: its UUID, or a digest of its name. */
export function instanceFolderName(key: SpecKey): string {
  return isUuid(key) ? key : `n-${createHash('sha256').update(key).digest('hex').slice(0, 32)}`
}

/** A dot is none of them, so an id with a dotted suffix is never another key's id. */
const READABLE = /^[\w-]{1,64}$/

/**
 * The id of a component in QEMU's arguments and in QMP. Different keys give different ids. The prefix is needed because
 * an id has to begin with a letter, and because QEMU aborts when a device's id equals the name of one of its properties.
 */
export function qemuId(key: SpecKey): string {
  if (isUuid(key)) return `uuid-${key}`
  return READABLE.test(key) ? `name-${key}` : `hash-${digest(key)}`
}

/** QEMU's names of the nodes of a disk's backend. */
export interface NodeNames {
  /** The node that the disk names, and that stays when the file is replaced. */
  readonly format: string
  readonly file: string
  /** The file's node after a replacement, which is made while `file` still exists. The two alternate. */
  readonly otherFile: string
}

/** QEMU refuses names of nodes that are longer. */
const MAX_NODE_NAME = 31

/** The names of block nodes for a backend's key, which are those of no other key. */
export function nodeNames(key: SpecKey): NodeNames {
  const id = qemuId(key)
  const longest = MAX_NODE_NAME - '.a'.length
  const format = id.length <= longest ? id : `hash-${digest(key).slice(0, longest - 'hash-'.length)}`
  return { format, file: `${format}.a`, otherFile: `${format}.b` }
}

function digest(key: SpecKey): string {
  return createHash('sha256').update(key).digest('base64url')
}
