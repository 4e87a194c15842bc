import { familyOf, parseIp } from '../../base/ip-address.ts'
import {
  type Backend as BackendMessage,
  Board_Firmware,
  type Board as BoardMessage,
  type Device as DeviceMessage,
  File_Access,
  Specification,
  type Subnet,
} from '../../gen/microvm/instance/v1/instance.ts'
import { checkCount, checkSpec } from './check-spec.ts'
import { BACKEND_FIELDS, DEVICE_FIELDS, jsonName, pathOf, refuse, shown } from './component-path.ts'
import { MAX_SPECIFICATION_BYTES } from './limits.ts'
import {
  type Backend,
  type Board,
  type Device,
  type FileBackend,
  MACHINES,
  NETWORK_FILTERS,
  type NetworkFilter,
  type VmSpec,
} from './spec.ts'
import { isUuid, type SpecKey, specKey } from './spec-key.ts'

/**
 * The specification that a message stands for, checked. Throws INVALID_ARGUMENT that names the path of the first fault; a
 * field that is not set is one, unless the message's definition says what it means then.
 */
export function specFromProto(message: Specification): VmSpec {
  checkCount(Object.keys(message.devices).length + Object.keys(message.backends).length)
  const bytes = Specification.encode(message).finish().length
  if (bytes > MAX_SPECIFICATION_BYTES) {
    refuse('specification', `${bytes} bytes, want at most ${MAX_SPECIFICATION_BYTES}`)
  }
  if (message.board === undefined) refuse('board', 'missing')
  const spec: VmSpec = {
    board: boardFromProto(message.board),
    devices: componentsFromProto('devices', message.devices, deviceFromProto),
    backends: componentsFromProto('backends', message.backends, backendFromProto),
    rebootLimit: message.rebootLimit && { ...message.rebootLimit },
    limits: message.limits && { ...message.limits, memoryMib: Number(message.limits.memoryMib) },
  }
  checkSpec(spec)
  return spec
}

function boardFromProto(message: BoardMessage): Board {
  const machine = MACHINES.find((name) => name === message.machine)
  if (machine === undefined) {
    const fault = message.machine === '' ? 'missing' : `${shown(message.machine)}: unknown`
    refuse('board.machine', `${fault}, want ${MACHINES.join(', ')}`)
  }
  const { memoryMib, cpus, room, kernel, initrd, commandLine, vmlinux, firmware } = message
  return {
    machine,
    memoryMib: Number(memoryMib),
    cpus,
    room: room && { ...room, memoryMib: Number(room.memoryMib) },
    kernel: kernel || undefined,
    firmware: firmwareFromProto(firmware),
    initrd: initrd || undefined,
    commandLine,
    vmlinux: vmlinux || undefined,
    ...(message.generationId && { generationId: true }),
  }
}

function firmwareFromProto(firmware: Board_Firmware): Board['firmware'] {
  if (firmware === Board_Firmware.FIRMWARE_UNSPECIFIED) return undefined
  if (firmware === Board_Firmware.BIOS) return 'bios'
  if (firmware === Board_Firmware.UEFI) return 'uefi'
  return refuse('board.firmware', `${firmware}: unknown, want BIOS or UEFI`)
}

/** Two notations of one UUID are one key, which may not be there twice. */
function componentsFromProto<Message, Component>(
  field: 'devices' | 'backends',
  messages: Readonly<Record<string, Message>>,
  convert: (key: string, message: Message) => Component,
): Record<SpecKey, Component> {
  // The key `__proto__` of a message has become this object's prototype.
  if (Object.getPrototypeOf(messages) !== Object.prototype) keyAt(field, '__proto__')
  const spellings = new Map<SpecKey, string>()
  const entries = Object.entries(messages).map(([text, message]) => {
    const key = keyAt(field, text)
    const other = spellings.get(key)
    if (other !== undefined) refuse(pathOf(field, text), `same key as ${pathOf(field, other)}`)
    spellings.set(key, text)
    return [key, convert(key, message)] as const
  })
  return Object.fromEntries(entries)
}

function keyAt(path: string, text: string): SpecKey {
  try {
    return specKey(text)
  } catch (error) {
    return refuse(path, error instanceof Error ? error.message : String(error))
  }
}

/** Throws INVALID_ARGUMENT that names the field which is missing, or which a device of this kind does not have. */
export function deviceFromProto(key: string, message: DeviceMessage): Device {
  const at = (...names: readonly string[]) => pathOf('devices', key, ...names)
  const fieldOf = onlyKind(message, DEVICE_FIELDS, at())
  const takes = DEVICE_TAKES[fieldOf] ?? { backend: true, slot: true, port: true }
  for (const name of ['backend', 'slot', 'port'] as const) {
    if (!takes[name] && message[name]) refuse(at(name), `not possible for ${jsonName(fieldOf)}`)
  }
  const { slot } = message
  const port = message.port === '' ? undefined : keyAt(at('port'), message.port)
  if (message.rootPort) return { kind: 'root-port', slot, func: message.rootPort.function }
  if (message.pciBridge) return { kind: 'pci-bridge', slot }
  if (message.backend === '') refuse(at('backend'), 'missing')
  const backend = keyAt(at('backend'), message.backend)
  const { disk, persistentMemory, nic, vsock, firmwareItem, share } = message
  if (disk) {
    return {
      kind: 'disk',
      interface: disk.nvme ? 'nvme' : 'virtio-blk',
      slot,
      port,
      serial: disk.serial,
      ...(disk.noSnapshot && { noSnapshot: true }),
      backend,
    }
  }
  if (persistentMemory) {
    return { kind: 'nvdimm', slot, sizeBytes: Number(persistentMemory.sizeBytes), backend }
  }
  if (nic) {
    const { mac, replaceable, addresses } = nic
    const filters = filtersFromProto(nic.filters, at('nic', 'filters'))
    return { kind: 'nic', slot, port, mac, replaceable, filters, addresses, backend }
  }
  if (vsock) return { kind: 'vsock', slot, port, cid: vsock.cid, backend }
  if (firmwareItem) return { kind: 'fw-cfg', name: firmwareItem.name, backend }
  if (share) return { kind: 'share', slot, port, tag: share.tag, backend }
  return message.serial ? { kind: 'serial', backend } : { kind: 'virtio-console', slot, port, backend }
}

const ALL_FILTERS: readonly NetworkFilter[] = [...NETWORK_FILTERS, 'agent-only']

/** `clean-traffic`, as libvirt calls it, is all that libvirt has. */
function filtersFromProto(names: readonly string[], path: string): readonly NetworkFilter[] {
  const found = names.flatMap((name, index) => {
    if (name === 'clean-traffic') return NETWORK_FILTERS
    const filter = ALL_FILTERS.find((each) => each === name)
    const known = [...ALL_FILTERS, 'clean-traffic'].join(', ')
    return filter ?? refuse(`${path}[${index}]`, `${shown(name)}: unknown, want ${known}`)
  })
  return ALL_FILTERS.filter((name) => found.includes(name))
}

type Takes = Readonly<Record<'backend' | 'slot' | 'port', boolean>>

/** The general fields of a device that some kinds do not have. */
const DEVICE_TAKES: Readonly<Partial<Record<(typeof DEVICE_FIELDS)[Device['kind']], Takes>>> = {
  rootPort: { backend: false, slot: true, port: false },
  pciBridge: { backend: false, slot: true, port: false },
  persistentMemory: { backend: true, slot: true, port: false },
  serial: { backend: true, slot: false, port: false },
  firmwareItem: { backend: true, slot: false, port: false },
}

/** The one field of a oneof that is set; the generated messages do not keep others from being set as well. */
function onlyKind<Field extends string>(
  message: Readonly<Partial<Record<Field, unknown>>>,
  fields: Readonly<Record<string, Field>>,
  path: string,
): Field {
  const names = Object.values(fields)
  const [name, ...others] = names.filter((field) => message[field] !== undefined)
  if (name === undefined) refuse(path, `no kind, want one of ${names.map(jsonName).join(', ')}`)
  if (others.length > 0) refuse(path, `${[name, ...others].map(jsonName).join(', ')}: want one kind`)
  return name
}

/** Throws INVALID_ARGUMENT that names the field which is missing. */
export function backendFromProto(key: string, message: BackendMessage): Backend {
  const path = pathOf('backends', key)
  onlyKind(message, BACKEND_FIELDS, path)
  const { file, tap, vhostUser, virtiofsd, content, folder, userNetwork } = message
  if (file) {
    const { secret = '' } = file.encryption ?? {}
    const encryption =
      file.encryption === undefined ? undefined : { secret: uuidAt(`${path}.file.encryption.secret`, secret) }
    const access = accessOf(file.access, `${path}.file.access`)
    return { kind: 'file', path: file.path, access, encryption, host: file.host || undefined }
  }
  if (tap) return { kind: 'tap', interfaceName: tap.interfaceName, bridge: tap.bridge || undefined }
  if (vhostUser) return { kind: 'vhost-user', socket: vhostUser.socket }
  if (virtiofsd) return { kind: 'virtiofsd', path: virtiofsd.path }
  if (content) return { kind: 'content', path: content.path }
  if (folder) return { kind: 'folder', path: folder.path }
  if (userNetwork) {
    const subnets = userNetwork.subnets.map((subnet, index) =>
      subnetFromProto(subnet, `${path}.user_network.subnets[${index}]`),
    )
    return { kind: 'user-network', forwards: userNetwork.forwards.map((each) => ({ ...each })), subnets }
  }
  if (message.passt) return { kind: 'passt' }
  if (message.vhostVsock) return { kind: 'vhost-vsock' }
  return message.vsockDaemon ? { kind: 'vsock-daemon' } : { kind: 'console' }
}

function uuidAt(path: string, text: string): string {
  const uuid = keyAt(path, text)
  return isUuid(uuid) ? uuid : refuse(path, 'want the UUID of a secret')
}

function accessOf(access: File_Access, path: string): FileBackend['access'] {
  switch (access) {
    case File_Access.READ_ONLY:
      return 'read-only'
    case File_Access.READ_WRITE:
      return 'read-write'
    case File_Access.SCRATCH:
      return 'scratch'
    default:
      return refuse(path, `${access === 0 ? 'missing' : 'unknown'}, want READ_ONLY, READ_WRITE or SCRATCH`)
  }
}

function subnetFromProto(subnet: Subnet, path: string) {
  const address = parseIp(subnet.network)
  if (address === undefined) refuse(`${path}.network`, `${shown(subnet.network)}: want an IP address`)
  return { family: familyOf(address), ...subnet }
}
