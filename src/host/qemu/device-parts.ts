import { AgentError } from '../../base/errors.ts'
import { placeNumber } from '../spec/device-order.ts'
import {
  type Backend,
  chipsetOf,
  type Device,
  type DiskDevice,
  type NicDevice,
  type NvdimmDevice,
  type RootPortDevice,
  type ShareDevice,
  type VirtioConsoleDevice,
  type VmSpec,
  type VsockDevice,
} from '../spec/spec.ts'
import { nodeNames, qemuId, type SpecKey } from '../spec/spec-key.ts'
import { netdevParts } from './netdev-parts.ts'
import type { Part } from './parts.ts'
import { type LayerFile, type PartsHost, socketOf } from './parts-host.ts'

/** What QEMU needs for one device of a checked specification, in the order in which it has to be made. */
export function deviceParts(spec: VmSpec, key: SpecKey, host: PartsHost): readonly Part[] {
  const device = spec.devices[key]
  if (device === undefined) throw new AgentError('INTERNAL', `device ${key}: not in the specification`)
  const id = qemuId(key)
  switch (device.kind) {
    case 'disk':
      return diskParts(spec, id, device, host)
    case 'nvdimm':
      return nvdimmParts(spec, id, device, host)
    case 'nic':
      return nicParts(spec, id, device, host)
    case 'vsock':
      return vsockParts(spec, id, device, host)
    case 'serial':
      return [
        stdio(device.backend),
        { option: 'serial', type: `chardev:${qemuId(device.backend)}`, properties: {} },
      ]
    case 'virtio-console':
      return consoleParts(spec, id, device)
    case 'fw-cfg': {
      const { path } = backendOf(spec, device.backend, 'content')
      const file = host.opener?.read(path) ?? path
      return [{ option: 'fw_cfg', properties: { name: device.name, file } }]
    }
    case 'share':
      return shareParts(spec, id, device, host)
    case 'root-port':
      return [rootPort(id, device)]
    case 'pci-bridge': {
      const properties = { id, addr: hex(device.slot), chassis_nr: device.slot }
      return [{ option: 'device', type: 'pci-bridge', properties }]
    }
    default:
      return device satisfies never
  }
}

function diskParts(spec: VmSpec, id: string, device: DiskDevice, host: PartsHost): readonly Part[] {
  const { path, access, encryption } = backendOf(spec, device.backend, 'file')
  const { format, file } = nodeNames(device.backend)
  const model = device.interface === 'nvme' ? 'nvme' : 'virtio-blk'
  const served = servedFile(host, device.backend)
  const filename = served === undefined ? (host.opener?.disk(path, access === 'read-write') ?? path) : ''
  const boot = spec.board.kernel === undefined ? { bootindex: placeNumber(spec, device) } : {}
  if (access === 'scratch') {
    const name = qemuId(device.backend)
    // What the guest writes is dropped when this host crashes, so QEMU need not wait for its disk.
    const options = { if: 'none', id: name, format: 'raw', file: filename, snapshot: true, cache: 'unsafe' }
    return [
      { option: 'drive', properties: options },
      placed(spec, device, model, { id, drive: name, serial: device.serial, ...boot }),
    ]
  }
  const driver = host.blockDevices?.has(path) ? 'host_device' : 'file'
  const readOnly = access === 'read-only' ? { 'read-only': true } : {}
  const layers = access === 'read-write' ? (host.layers?.get(device.backend) ?? []) : []
  const below = layers.length > 0 ? { 'read-only': true } : readOnly
  const drive = layers.at(-1)?.node ?? format
  const key = encryption === undefined ? undefined : keyPart(device.backend, encryption.secret, host)
  const opened = key === undefined ? { driver: 'raw' } : { driver: 'luks', 'key-secret': key.properties.id }
  return [
    ...(key === undefined ? [] : [key]),
    {
      option: 'blockdev',
      properties: served ?? { driver, 'node-name': file, filename, ...readOnly },
    },
    { option: 'blockdev', properties: { ...opened, 'node-name': format, file, ...below } },
    ...layers.flatMap((layer, index) => {
      const backing = layers[index - 1]?.node ?? format
      const isTop = index === layers.length - 1
      return layerParts(layer, { backing, isTop, opener: host.opener, key: key?.properties.id })
    }),
    placed(spec, device, model, { id, drive, serial: device.serial, ...boot }),
  ]
}

/** What a server has of the disk of a machine with LM_FULL_LEASES: its file, or undefined for one that QEMU opens itself. */
function servedFile(host: PartsHost, key: SpecKey) {
  const path = host.servedDisks?.get(key)
  if (path === undefined) return undefined
  const server = { 'server.type': 'unix', 'server.path': path, export: SERVED_DISK }
  return { driver: 'nbd', 'node-name': nodeNames(key).file, ...server, 'reconnect-delay': RECONNECT_SECONDS }
}

/** The name of the only disk that a server has for QEMU. */
export const SERVED_DISK = 'disk'
/** How long requests wait for a server that is started again. */
export const RECONNECT_SECONDS = 10

/**
 * The blocks of a layer on top of the node `backing`, which is named here: what the image itself says is below it is not
 * looked at. Its file can be written also where nothing is, for a merge.
 */
export function layerParts(
  { node, path }: LayerFile,
  { backing, isTop, key, opener }: LayerPlace,
): readonly Part[] {
  const filename = opener?.disk(path, true) ?? path
  const readOnly = isTop ? {} : { 'read-only': true }
  const encrypted = key === undefined ? {} : { 'encrypt.format': 'luks', 'encrypt.key-secret': key }
  const names = { 'node-name': node, file: fileNodeOf(node), backing }
  return [
    { option: 'blockdev', properties: { driver: 'file', 'node-name': fileNodeOf(node), filename } },
    { option: 'blockdev', properties: { driver: 'qcow2', ...names, ...encrypted, ...readOnly } },
  ]
}

interface LayerPlace extends Pick<PartsHost, 'opener'> {
  readonly backing: string | null
  readonly isTop: boolean
  /** The object with the secret of an encrypted one. */
  readonly key: string | undefined
}

export function fileNodeOf(node: string): string {
  return `${node}.a`
}

/**
 * QEMU reads the secret from the file, so that no command line has it; one that runs gets it by QMP. A dot is in no id, so this is one of no other key. */
export function keyPart(backend: SpecKey, uuid: string, { secrets, secretValues, opener }: PartsHost) {
  const id = keyOf(backend)
  const path = secrets?.get(uuid)
  if (path !== undefined) {
    const properties = { id, file: opener?.read(path) ?? path }
    return { option: 'object', type: 'secret', properties } as const
  }
  const properties = { id, data: secretValues?.get(uuid) ?? '', format: 'base64' }
  return { option: 'object', type: 'secret', properties } as const
}

export function keyOf(backend: SpecKey): string {
  return `${qemuId(backend)}.key`
}

/** `unarmed` tells the guest that the memory is read-only. */
function nvdimmParts(spec: VmSpec, id: string, device: NvdimmDevice, host: PartsHost): readonly Part[] {
  const { path } = backendOf(spec, device.backend, 'file')
  const memory = qemuId(device.backend)
  const name = host.opener?.map(path) ?? path
  const file = { id: memory, 'mem-path': name, size: device.sizeBytes, share: true, readonly: true }
  return [
    { option: 'object', type: 'memory-backend-file', properties: file },
    { option: 'device', type: 'nvdimm', properties: { id, memdev: memory, unarmed: true } },
  ]
}

function nicParts(spec: VmSpec, id: string, device: NicDevice, host: PartsHost): readonly Part[] {
  const netdev = qemuId(device.backend)
  return [
    ...netdevParts(spec, device, host),
    placed(spec, device, 'virtio-net', { id, netdev, mac: device.mac }),
  ]
}

function vsockParts(spec: VmSpec, id: string, device: VsockDevice, host: PartsHost): readonly Part[] {
  if (spec.backends[device.backend]?.kind === 'vhost-vsock') {
    const cid = device.cid === 0 ? host.cid : device.cid
    if (cid === undefined) throw new AgentError('INTERNAL', `device ${id}: no context id`)
    const vhostfd = host.opener?.device('/dev/vhost-vsock')
    const opened = vhostfd === undefined ? {} : { vhostfd }
    return [placed(spec, device, 'vhost-vsock', { id, 'guest-cid': cid, ...opened })]
  }
  const chardev = qemuId(device.backend)
  return [daemonSocket(spec, device.backend, host), placed(spec, device, 'vhost-user-vsock', { id, chardev })]
}

function consoleParts(spec: VmSpec, id: string, device: VirtioConsoleDevice): readonly Part[] {
  const chardev = qemuId(device.backend)
  return [
    stdio(device.backend),
    placed(spec, device, 'virtio-serial', { id }),
    { option: 'device', type: 'virtconsole', properties: { bus: `${id}.0`, chardev } },
  ]
}

/** QEMU's own stdin and stdout. With `signal=off` QEMU leaves Ctrl-C to the process at their other ends. */
export function stdio(backend: SpecKey): Part {
  return { option: 'chardev', type: 'stdio', properties: { id: qemuId(backend), signal: false } }
}

function shareParts(spec: VmSpec, id: string, device: ShareDevice, host: PartsHost): readonly Part[] {
  const backend = spec.backends[device.backend]
  const name = qemuId(device.backend)
  if (backend?.kind === 'folder') {
    const folder = { id: name, path: backend.path, security_model: 'passthrough' }
    return [
      { option: 'fsdev', type: 'local', properties: folder },
      placed(spec, device, 'virtio-9p', { id, fsdev: name, mount_tag: device.tag }),
    ]
  }
  return [
    daemonSocket(spec, device.backend, host),
    placed(spec, device, 'vhost-user-fs', { id, chardev: name, tag: device.tag }),
  ]
}

export function daemonSocket(spec: VmSpec, key: SpecKey, host: PartsHost): Part {
  const backend = spec.backends[key]
  const id = qemuId(key)
  if (backend?.kind !== 'vhost-user')
    return { option: 'chardev', type: 'socket', properties: { id, path: socketOf(host, key) } }
  const fd = host.opener?.connection(backend.socket)
  const place = fd === undefined ? { path: backend.socket } : { fd }
  return { option: 'chardev', type: 'socket', properties: { id, ...place } }
}

function rootPort(id: string, { slot, func = 0 }: RootPortDevice): Part {
  const number = slot * FUNCTIONS + func
  const place = {
    bus: 'pcie.0',
    addr: `${hex(slot)}.${func}`,
    multifunction: true,
    chassis: number,
    slot: number,
  }
  // No I/O space, because a few ports would use up all of it and modern virtio needs none. One spare bus number, for a
  // bridge that is plugged in.
  const room = { 'io-reserve': 0, 'bus-reserve': 1 }
  return { option: 'device', type: 'pcie-root-port', properties: { id, ...place, ...room } }
}

const FUNCTIONS = 8

type Placed = Device & { readonly slot: number; readonly port?: SpecKey | undefined }

/** `virtio-blk-pci,addr=…` on a PCI machine, `virtio-blk-device` on virtio-mmio. */
function placed(spec: VmSpec, device: Placed, model: string, properties: Part['properties']): Part {
  if (chipsetOf(spec.board.machine) === 'microvm')
    return { option: 'device', type: `${model}-device`, properties }
  const bus = device.port === undefined ? {} : { bus: qemuId(device.port) }
  const type = model === 'nvme' ? model : `${model}-pci`
  return { option: 'device', type, properties: { ...bus, addr: hex(device.slot), ...properties } }
}

function hex(slot: number): string {
  return `0x${slot.toString(16)}`
}

function backendOf<Kind extends Backend['kind']>(
  spec: VmSpec,
  key: SpecKey,
  kind: Kind,
): Extract<Backend, { readonly kind: Kind }> {
  const backend = spec.backends[key]
  // The kind decides the type.
  if (backend?.kind === kind) return backend as Extract<Backend, { readonly kind: Kind }>
  throw new AgentError('INTERNAL', `backend ${key}: not a ${kind}, want checkSpec to run first`)
}
