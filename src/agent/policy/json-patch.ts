/**
 * Applies a JSON patch (RFC 6902); numbers keep all digits. Throws with the operation that is malformed, fails, or leaves
 * `root` (a JSON pointer). Own code, because libraries ignore failed operations or lose keys like `__proto__`.
 */
export function patchJson(document: string, operations: readonly unknown[], root: string): string {
  const parsed = parseExactly(document)
  for (const [index, operation] of operations.entries()) {
    try {
      apply(parsed, operation, root)
    } catch (error) {
      throw new Error(`ops[${index}]: ${error instanceof Error ? error.message : error}`, { cause: error })
    }
  }
  return JSON.stringify(parsed)
}

/** JSON.rawJSON and the reviver's third argument (ECMAScript 2026), which the type declarations lack. */
interface ExactJson {
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { source?: string }) => unknown,
  ): unknown
  rawJSON(text: string): unknown
}

/** A number that a double cannot hold becomes an object that is written as the same number. */
export function parseExactly(text: string): unknown {
  const exact = JSON as unknown as ExactJson
  return exact.parse(text, (_key, value, { source }) => {
    if (typeof value !== 'number' || Number.isSafeInteger(value) || source === undefined) return value
    return String(value) === source ? value : exact.rawJSON(source)
  })
}

interface Place {
  readonly holder: object
  /** Undefined for the place behind the last element. */
  readonly key: string | undefined
}

function apply(document: unknown, operation: unknown, root: string): void {
  const path = memberText(operation, 'path')
  const target = () => placeOf(document, path, root)
  const source = () => placeOf(document, memberText(operation, 'from'), root)
  const op = memberText(operation, 'op')
  if (op === 'add') add(target(), memberOf(operation, 'value'))
  else if (op === 'remove') remove(target())
  else if (op === 'replace') replace(target(), memberOf(operation, 'value'))
  else if (op === 'copy') add(target(), clone(getExisting(source())))
  else if (op === 'move') move(source(), target, path.startsWith(`${memberText(operation, 'from')}/`))
  else if (op === 'test') test(target(), memberOf(operation, 'value'))
  else throw new Error(`op: unknown operation ${JSON.stringify(op)}`)
}

function memberOf(operation: unknown, name: string): unknown {
  if (typeof operation !== 'object' || operation === null || !Object.hasOwn(operation, name))
    throw new Error(`${name}: missing`)
  return Reflect.get(operation, name)
}

function memberText(operation: unknown, name: string): string {
  const value = memberOf(operation, name)
  if (typeof value !== 'string') throw new Error(`${name}: not a text`)
  return value
}

/** The place of a JSON pointer (RFC 6901), whose holder must exist. */
function placeOf(document: unknown, pointer: string, root: string): Place {
  if (pointer !== root && !pointer.startsWith(`${root}/`)) throw new Error(`${pointer}: outside of ${root}`)
  const keys = pointer.split('/').slice(1).map(unescapeKey)
  let holder = document
  for (const key of keys.slice(0, -1)) holder = getExisting(placeIn(holder, key, pointer))
  return placeIn(holder, keys.at(-1) ?? '', pointer)
}

function unescapeKey(escaped: string): string {
  if (/~(?![01])/.test(escaped)) throw new Error(`${escaped}: not a JSON pointer`)
  return escaped.replaceAll('~1', '/').replaceAll('~0', '~')
}

function placeIn(holder: unknown, key: string, pointer: string): Place {
  // A raw number is an object without a prototype.
  if (typeof holder !== 'object' || holder === null || Object.getPrototypeOf(holder) === null)
    throw new Error(`${pointer}: its parent is not an object or array`)
  if (!Array.isArray(holder)) return { holder, key }
  if (key === '-') return { holder, key: undefined }
  if (!/^(0|[1-9][0-9]*)$/.test(key) || Number(key) > holder.length)
    throw new Error(`${pointer}: not an index of the array`)
  return { holder, key: Number(key) === holder.length ? undefined : key }
}

function getExisting({ holder, key }: Place): unknown {
  if (key === undefined || !Object.hasOwn(holder, key)) throw new Error(`${key ?? 'end'}: not found`)
  return Reflect.get(holder, key)
}

function add(place: Place, value: unknown): void {
  const { holder, key } = place
  if (!Array.isArray(holder)) set(place, value)
  else if (key === undefined) holder.push(value)
  else holder.splice(Number(key), 0, value)
}

/** An assignment to `__proto__` would set the prototype. */
function set({ holder, key }: Place, value: unknown): void {
  Object.defineProperty(holder, key ?? '', { value, writable: true, enumerable: true, configurable: true })
}

function replace(place: Place, value: unknown): void {
  getExisting(place)
  set(place, value)
}

/** The target is looked up after the removal of the source (RFC 6902, section 4.4). */
function move(from: Place, target: () => Place, isInside: boolean): void {
  if (isInside) throw new Error('from: an object cannot move into itself')
  const value = getExisting(from)
  remove(from)
  add(target(), value)
}

function test(place: Place, value: unknown): void {
  if (canonical(getExisting(place)) !== canonical(value)) throw new Error('test: the values differ')
}

function remove(place: Place): void {
  const { holder, key } = place
  getExisting(place)
  if (Array.isArray(holder)) holder.splice(Number(key), 1)
  else Reflect.deleteProperty(holder, key ?? '')
}

function clone(value: unknown): unknown {
  return parseExactly(JSON.stringify(value))
}

/** Sorts the members of objects. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) === null)
    return JSON.stringify(value)
  const members = Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1))
  return `{${members.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(',')}}`
}
