import { AgentError } from '../../base/errors.ts'
import type { Backend, Device } from './spec.ts'

/** The fields of the protobuf form (proto/microvm/instance/v1/instance.proto) that hold what is of one kind only. */
export const DEVICE_FIELDS = {
  disk: 'disk',
  nvdimm: 'persistentMemory',
  nic: 'nic',
  vsock: 'vsock',
  serial: 'serial',
  'virtio-console': 'virtioConsole',
  'fw-cfg': 'firmwareItem',
  'root-port': 'rootPort',
  'pci-bridge': 'pciBridge',
  share: 'share',
} as const satisfies Record<Device['kind'], string>

export const BACKEND_FIELDS = {
  file: 'file',
  passt: 'passt',
  tap: 'tap',
  'vhost-vsock': 'vhostVsock',
  'vsock-daemon': 'vsockDaemon',
  'vhost-user': 'vhostUser',
  virtiofsd: 'virtiofsd',
  console: 'console',
  content: 'content',
  folder: 'folder',
  'user-network': 'userNetwork',
} as const satisfies Record<Backend['kind'], string>

const MAX_SHOWN = 128

/** The path of a part of a specification by its names in JSON: `devices.root.slot`, `devices["a b"]`, `board.memory_mib`. */
export function pathOf(field: string, ...names: readonly string[]): string {
  const isKeyed = ['devices', 'backends', 'replaceComponents'].includes(field)
  const shownNames = names.map((name, index) => (isKeyed && index === 0 ? name : jsonName(name)))
  return [jsonName(field), ...shownNames].reduce((path, name) => {
    if (!/^[\w-]+$/.test(name)) return `${path}[${shown(name)}]`
    return path === '' ? name : `${path}.${name}`
  }, '')
}

/** The name in JSON of a field that is generated from the contract: `memory_mib` for `memoryMib`. */
export function jsonName(field: string): string {
  return field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

/** A text of a caller for a message, cut so that the message stays short. */
export function shown(text: string): string {
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text)
}

/** Throws INVALID_ARGUMENT. */
export function refuse(path: string, reason: string): never {
  throw new AgentError('INVALID_ARGUMENT', `${path}: ${reason}`)
}
