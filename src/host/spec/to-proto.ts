import {
  type Backend as BackendMessage,
  Board_Firmware,
  type Device as DeviceMessage,
  File_Access,
  type Specification,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { Backend, Board, Device, FileBackend, VmSpec } from './spec.ts'

/** The message for a specification. */
export function specToProto(spec: VmSpec): Specification {
  return {
    board: boardToProto(spec.board),
    devices: Object.fromEntries(
      Object.entries(spec.devices).map(([key, device]) => [key, deviceToProto(device)]),
    ),
    backends: Object.fromEntries(
      Object.entries(spec.backends).map(([key, backend]) => [key, backendToProto(backend)]),
    ),
    rebootLimit: spec.rebootLimit && { ...spec.rebootLimit },
    limits: spec.limits && { ...spec.limits, memoryMib: BigInt(spec.limits.memoryMib) },
  }
}

const FIRMWARES = { bios: Board_Firmware.BIOS, uefi: Board_Firmware.UEFI } as const

function boardToProto({
  memoryMib,
  room,
  kernel = '',
  initrd = '',
  vmlinux = '',
  firmware,
  generationId = false,
  ...board
}: Board) {
  return {
    ...board,
    kernel,
    generationId,
    firmware: firmware === undefined ? Board_Firmware.FIRMWARE_UNSPECIFIED : FIRMWARES[firmware],
    memoryMib: BigInt(memoryMib),
    room: room && { ...room, memoryMib: BigInt(room.memoryMib) },
    initrd,
    vmlinux,
  }
}

function deviceToProto(device: Device): DeviceMessage {
  const { backend, slot, port } = { backend: '', slot: 0, port: undefined, ...device }
  return { backend, slot: slot ?? 0, port: port ?? '', ...kindToProto(device) }
}

type Kind = Omit<DeviceMessage, 'backend' | 'slot' | 'port'>

function kindToProto(device: Device): Kind {
  switch (device.kind) {
    case 'disk':
      return {
        disk: {
          serial: device.serial,
          nvme: device.interface === 'nvme',
          noSnapshot: device.noSnapshot ?? false,
        },
      }
    case 'nvdimm':
      return { persistentMemory: { sizeBytes: BigInt(device.sizeBytes) } }
    case 'nic':
      return {
        nic: {
          mac: device.mac,
          replaceable: device.replaceable ?? false,
          filters: [...(device.filters ?? [])],
          addresses: [...(device.addresses ?? [])],
        },
      }
    case 'vsock':
      return { vsock: { cid: device.cid } }
    case 'serial':
      return { serial: {} }
    case 'virtio-console':
      return { virtioConsole: {} }
    case 'fw-cfg':
      return { firmwareItem: { name: device.name } }
    case 'root-port':
      return { rootPort: { function: device.func ?? 0 } }
    case 'pci-bridge':
      return { pciBridge: {} }
    case 'share':
      return { share: { tag: device.tag } }
    default:
      return device satisfies never
  }
}

function backendToProto(backend: Backend): BackendMessage {
  switch (backend.kind) {
    case 'file':
      return {
        file: {
          ...{ path: backend.path, access: ACCESS[backend.access] },
          ...{ encryption: backend.encryption, host: backend.host ?? '' },
        },
      }
    case 'passt':
      return { passt: {} }
    case 'tap':
      return { tap: { interfaceName: backend.interfaceName, bridge: backend.bridge ?? '' } }
    case 'vhost-vsock':
      return { vhostVsock: {} }
    case 'vsock-daemon':
      return { vsockDaemon: {} }
    case 'vhost-user':
      return { vhostUser: { socket: backend.socket } }
    case 'virtiofsd':
      return { virtiofsd: { path: backend.path } }
    case 'console':
      return { console: {} }
    case 'content':
      return { content: { path: backend.path } }
    case 'folder':
      return { folder: { path: backend.path } }
    case 'user-network': {
      const subnets = (backend.subnets ?? []).map(({ family: _, ...subnet }) => subnet)
      return { userNetwork: { forwards: backend.forwards.map((each) => ({ ...each })), subnets } }
    }
    default:
      return backend satisfies never
  }
}

const ACCESS: Readonly<Record<FileBackend['access'], File_Access>> = {
  'read-only': File_Access.READ_ONLY,
  'read-write': File_Access.READ_WRITE,
  scratch: File_Access.SCRATCH,
}
