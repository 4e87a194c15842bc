import { AgentError } from '../../../base/errors.ts'
import type { Machine, MachineBackend, MachineDevice, Scalar } from '../../machine/machine.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { Backend, FileBackend, NetworkDisk } from '../../spec/spec.ts'
import { nodeNames, qemuId, type SpecKey, specKey } from '../../spec/spec-key.ts'
import { daemonSocket, keyPart, layerParts, SERVED_DISK, stdio } from '../device-parts.ts'
import { netdevParts } from '../netdev-parts.ts'
import { type PartsHost, socketOf } from '../parts-host.ts'
import { asSpec, type Backends } from './as-spec.ts'
import type { MachineHost, Provision } from './machine-arguments.ts'

export interface ProvisionHost extends PartsHost {
  /** The path by which QEMU reaches a file of its instance, such as a socket that it makes. */
  readonly ownFile: (name: string) => string
}

const NOTHING: Provision = { parts: [], properties: {} }

/**
 * How this host provides each device of an expanded machine, with the backends that were found for it. Throws
 * FAILED_PRECONDITION naming what cannot be provided.
 */
export function provisionsFor(
  machine: Machine,
  backends: Backends,
  host: ProvisionHost,
): MachineHost['provide'] {
  const spec = asSpec(machine, backends)
  return (key, device, wished) => {
    const backendKey = specKey(device.backend ?? '')
    const id = qemuId(backendKey)
    const found = backends[backendKey]
    switch (device.kind) {
      case 'disk':
      case 'cdrom':
        if (found?.kind === 'network-disk') return networkDisk(device, found, host)
        return found?.kind === 'file' ? disk(key, device, found, host) : emptyDrive(key, device)
      case 'nic': {
        const card = spec.devices[specKey(key)]
        if (card?.kind !== 'nic') throw missing(key, found, 'a network')
        if (card.queues !== undefined && found?.kind !== 'tap')
          throw refusal(
            key,
            ['properties', 'queues'],
            'passt has one queue, want a network with a bridge or tap',
          )
        return { parts: netdevParts(spec, card, host), properties: { netdev: id } }
      }
      case 'vsock':
        if (found?.kind === 'vhost-vsock') throw missing(key, found, 'the vsock daemon')
        return {
          parts: [daemonSocket(spec, backendKey, host)],
          ...{ model: 'vhost-user-vsock', properties: { chardev: id, 'guest-cid': undefined } },
        }
      case 'console':
        return { parts: [stdio(backendKey)], properties: { chardev: id } }
      case 'share':
        return share(key, device, found, { id, socket: () => daemonSocket(spec, backendKey, host) })
      case 'firmware-item': {
        const path = found?.kind === 'content' ? found.path : undefined
        if (path === undefined) throw missing(key, found, 'a file')
        const words = ['-fw_cfg', `name=${device.properties.name},file=${host.opener?.read(path) ?? path}`]
        return { ...NOTHING, words }
      }
      case 'channel':
        return { parts: [channel(machine, backendKey, wished, host)], properties: { chardev: id } }
      case 'rng': {
        const properties = { id, filename: wished.path ?? '/dev/urandom' }
        return { parts: [{ option: 'object', type: 'rng-random', properties }], properties: { rng: id } }
      }
      case 'display':
        return { ...NOTHING, words: screen(wished, host.ownFile(`${backendKey}.sock`)) }
      default:
        throw new AgentError('INTERNAL', `${pathOf('devices', key)}: no backend for a ${device.kind}`)
    }
  }
}

/** What the machine has and this host does not give, in sentences. */
export function notGiven(machine: Machine): readonly string[] {
  return Object.entries(machine.devices).flatMap(([key, { backend = '', kind }]) => {
    const { options = {}, path, kind: wish } = machine.backends[backend] ?? {}
    const at = `not given here: ${pathOf('devices', key)}`
    if (kind === 'display' && options.listen !== undefined)
      return [`${at} at ${options.listen} (its socket is in the instance's folder)`]
    if (wish === 'spice-agent' && !hasSpice(machine)) return [`${at} (no screen by spice)`]
    return wish === 'socket' && path !== undefined
      ? [`${at} at ${path} (its socket is in the instance's folder)`]
      : []
  })
}

function emptyDrive(key: string, { kind }: MachineDevice): Provision {
  if (kind === 'cdrom') return NOTHING
  throw missing(key, undefined, 'a file')
}

/** What the storage daemon of the instance has of the server. */
function networkDisk(device: MachineDevice, from: NetworkDisk, host: PartsHost): Provision {
  const { cache = 'writeback' } = from
  const backend = specKey(device.backend ?? '')
  const { file: node, format } = nodeNames(backend)
  const common = {
    'cache.direct': cache === 'none' || cache === 'directsync',
    'cache.no-flush': cache === 'unsafe',
    ...(from.access === 'read-only' && { 'read-only': true }),
  }
  const isThrough = cache === 'writethrough' || cache === 'directsync'
  const server = { 'server.type': 'unix', 'server.path': socketOf(host, backend), export: SERVED_DISK }
  return {
    parts: [
      { option: 'blockdev', properties: { driver: 'nbd', 'node-name': node, ...server, ...common } },
      { option: 'blockdev', properties: { driver: 'raw', 'node-name': format, file: node, ...common } },
    ],
    properties: { drive: format, ...(isThrough && { 'write-cache': 'off' }) },
  }
}

function disk(key: string, device: MachineDevice, file: FileBackend, host: PartsHost): Provision {
  const { access, cache = 'writeback', encryption, format: kind = 'raw', io, path } = file
  if (encryption !== undefined && kind !== 'raw') throw refusal(key, ['encryption'], 'of a raw file only')
  const isDirect = cache === 'none' || cache === 'directsync'
  if (io === 'native' && !isDirect) throw refusal(key, ['io'], 'native: wants cache none or directsync')
  const isThrough = cache === 'writethrough' || cache === 'directsync'
  if (isThrough && device.model === 'nvme')
    throw refusal(key, ['cache'], `${cache}: nvme has a cache of its own`)
  const backend = specKey(device.backend ?? '')
  const secret = encryption === undefined ? undefined : keyPart(backend, encryption.secret, host)
  const opened =
    secret === undefined ? { driver: kind } : { driver: 'luks', 'key-secret': secret.properties.id }
  const { file: node, format } = nodeNames(backend)
  const isReadOnly = access !== 'read-write'
  const common = {
    'cache.direct': isDirect,
    'cache.no-flush': cache === 'unsafe',
    ...(isReadOnly && { 'read-only': true }),
  }
  const layers = isReadOnly ? [] : (host.layers?.get(backend) ?? [])
  const below = layers.length > 0 ? { 'read-only': true } : {}
  const filename = host.opener?.disk(path, !isReadOnly) ?? path
  const driver = host.blockDevices?.has(path) ? 'host_device' : 'file'
  const aio = io === undefined ? {} : { aio: io === 'io_uring' ? 'io_uring' : io }
  return {
    parts: [
      ...(secret === undefined ? [] : [secret]),
      { option: 'blockdev', properties: { driver, 'node-name': node, filename, ...aio, ...common } },
      {
        option: 'blockdev',
        // What an image names as the file below it is not opened.
        properties: {
          ...{ ...opened, 'node-name': format, file: node, ...common, ...below },
          ...(kind === 'qcow2' && { backing: null }),
        },
      },
      ...layers.flatMap((layer, index) => {
        const backing = layers[index - 1]?.node ?? format
        const isTop = index === layers.length - 1
        return layerParts(layer, { backing, isTop, opener: host.opener, key: secret?.properties.id })
      }),
    ],
    properties: {
      drive: layers.at(-1)?.node ?? format,
      ...(isThrough && { 'write-cache': 'off' }),
    },
  }
}

function share(
  key: string,
  device: MachineDevice,
  found: Backend | NetworkDisk | undefined,
  { id, socket }: { readonly id: string; readonly socket: () => Provision['parts'][number] },
): Provision {
  if (device.model !== 'virtio-9p') {
    if (found?.kind !== 'virtiofsd') throw missing(key, found, 'a folder')
    return { parts: [socket()], properties: { chardev: id } }
  }
  if (found?.kind !== 'folder') throw missing(key, found, 'a folder')
  const properties = { id, path: found.path, security_model: 'passthrough' } as const
  const readonly = 'readOnly' in found && found.readOnly === true ? { readonly: true } : {}
  return {
    parts: [{ option: 'fsdev', type: 'local', properties: { ...properties, ...readonly } }],
    properties: { fsdev: id },
  }
}

/** Nobody is at the other end of spice's own channel without its screen. */
function channel(machine: Machine, key: SpecKey, { kind }: MachineBackend, host: ProvisionHost) {
  const id = qemuId(key)
  if (kind === 'spice-agent') {
    const agent = { type: 'spicevmc', properties: { id, name: 'vdagent' } }
    return {
      option: 'chardev',
      ...(hasSpice(machine) ? agent : { type: 'null', properties: { id } }),
    } as const
  }
  const path = host.ownFile(`${key}.sock`)
  const properties: Readonly<Record<string, Scalar>> = { id, path, server: true, wait: false }
  return { option: 'chardev', type: 'socket', properties } as const
}

function hasSpice(machine: Machine): boolean {
  return Object.values(machine.backends).some(({ kind }) => kind === 'spice')
}

/** A screen is a socket in the instance's folder, which only its user and root may pass. Its password comes by QMP. */
function screen({ kind, options }: MachineBackend, socket: string): readonly string[] {
  const hasPassword = options.password !== undefined
  return kind === 'vnc'
    ? ['-vnc', `unix:${socket}${hasPassword ? ',password=on' : ''}`]
    : ['-spice', `unix=on,addr=${socket}${hasPassword ? '' : ',disable-ticketing=on'}`]
}

function missing(key: string, found: Backend | NetworkDisk | undefined, wanted: string): AgentError {
  return refusal(key, ['backend'], `${found?.kind ?? 'nothing'} on this host, want ${wanted}`)
}

function refusal(key: string, fields: readonly string[], text: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `${pathOf('devices', key, ...fields)}: ${text}`)
}
