import { AgentError } from '../../base/errors.ts'

/**
 * A part of a machine in QEMU, which an option of its command line makes at the start, and for some options a command of
 * QMP later.
 */
export interface Part {
  readonly option:
    | 'blockdev'
    | 'netdev'
    | 'chardev'
    | 'object'
    | 'device'
    | 'drive'
    | 'fsdev'
    | 'fw_cfg'
    | 'serial'
  /** The driver or type, which is the first word of some options. */
  readonly type?: string
  /** A name with a dot is a property in an object; a list is an option given several times; only a blockdev has null. */
  readonly properties: Readonly<Record<string, string | number | boolean | null | readonly string[]>>
}

export interface QmpCommand {
  readonly execute: string
  readonly arguments: Readonly<Record<string, unknown>>
}

export function wordsOf({ option, type, properties }: Part): readonly string[] {
  // Only this form has null.
  if (option === 'blockdev' && Object.values(properties).includes(null))
    return ['-blockdev', JSON.stringify(nested(properties))]
  const pairs = Object.entries(properties).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => `${name}=${textOf(each)}`),
  )
  return [`-${option}`, [...(type === undefined ? [] : [escaped(type)]), ...pairs].join(',')]
}

function textOf(value: string | number | boolean | null): string {
  if (value === null) throw new AgentError('INTERNAL', 'null in an option of QEMU other than blockdev')
  return typeof value === 'boolean' ? (value ? 'on' : 'off') : escaped(String(value))
}

/** Doubles the commas of a value, which would end it in QEMU's option lists. */
function escaped(value: string): string {
  return value.replaceAll(',', ',,')
}

/** The command that makes the part in a running machine. Throws UNIMPLEMENTED when QEMU has none. */
export function plugCommand({ option, type, properties }: Part): QmpCommand {
  switch (option) {
    case 'blockdev':
      return { execute: 'blockdev-add', arguments: nested(properties) }
    case 'netdev':
      return { execute: 'netdev_add', arguments: { type, ...nested(properties) } }
    case 'object':
      return { execute: 'object-add', arguments: { 'qom-type': type, ...nested(properties) } }
    case 'device':
      return { execute: 'device_add', arguments: { driver: type, ...nested(properties) } }
    case 'chardev':
      return chardevCommand(type, properties)
    case 'drive':
    case 'fsdev':
    case 'fw_cfg':
    case 'serial':
      throw new AgentError('UNIMPLEMENTED', `QEMU cannot add a ${option} to a running machine`)
    default:
      return option satisfies never
  }
}

function chardevCommand(type: string | undefined, { id, path, fd }: Part['properties']): QmpCommand {
  if (type !== 'socket') {
    throw new AgentError('UNIMPLEMENTED', `QEMU cannot add a chardev ${type} to a running machine`)
  }
  const addr = fd === undefined ? { type: 'unix', data: { path } } : { type: 'fd', data: { str: fd } }
  const data = { addr, server: false }
  return { execute: 'chardev-add', arguments: { id, backend: { type, data } } }
}

/** The command that removes the part, once nothing uses it; undefined for a device, which the guest has to let go. */
export function removeCommand({ option, properties }: Part): QmpCommand | undefined {
  const { id } = properties
  switch (option) {
    case 'blockdev':
      return { execute: 'blockdev-del', arguments: { 'node-name': properties['node-name'] } }
    case 'netdev':
      return { execute: 'netdev_del', arguments: { id } }
    case 'object':
      return { execute: 'object-del', arguments: { id } }
    case 'chardev':
      return { execute: 'chardev-remove', arguments: { id } }
    case 'device':
    case 'drive':
    case 'fsdev':
    case 'fw_cfg':
    case 'serial':
      return undefined
    default:
      return option satisfies never
  }
}

/** `addr.path` is the property `path` of the object `addr`. */
function nested(properties: Part['properties']): Record<string, unknown> {
  const result: Record<string, unknown> = {}
  const objects: Record<string, Record<string, unknown>> = {}
  for (const [name, value] of Object.entries(properties)) {
    const [outer = '', inner] = name.split('.')
    if (inner === undefined) result[outer] = value
    else {
      objects[outer] ??= {}
      objects[outer][inner] = value
    }
  }
  return { ...result, ...objects }
}
