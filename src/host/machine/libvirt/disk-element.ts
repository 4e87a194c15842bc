import { pathOf, refuse } from '../../spec/component-path.ts'
import type { Machine, MachineBackend, MachineDevice } from '../machine.ts'
import { type Element, element } from './element.ts'

interface Disk {
  readonly key: string
  readonly device: MachineDevice
  readonly backend: MachineBackend
  readonly machine: Machine
  readonly address: Element | undefined
  readonly thread: number | undefined
}

export function diskElement({ address, backend, device, key, machine, thread }: Disk): Element {
  if (device.model === 'nvme') refuse(pathOf('devices', key), 'libvirt 9.0 has no disks of interface nvme')
  const { format, io, optional, readOnly, snapshot, ...options } = backend.options
  const { bootindex, serial, werror } = device.properties
  const text = (value: unknown) => (value === undefined ? undefined : String(value))
  const policy = werror === 'enospc' ? 'enospace' : text(werror)
  const driver = {
    name: 'qemu',
    type: text(format) ?? 'raw',
    cache: text(options.cache),
    error_policy: policy,
    io: text(io),
  }
  return element(
    'disk',
    {
      type: backend.kind === 'volume' ? 'volume' : 'file',
      device: device.kind,
      snapshot: snapshot === undefined ? undefined : snapshot ? 'internal' : 'no',
    },
    element('driver', { ...driver, iothread: thread }),
    sourceElement(backend, optional === true),
    element('target', targetOf(key, device, machine)),
    tuning(options),
    readOnly === true ? element('readonly') : undefined,
    serial === undefined ? undefined : element('serial', {}, String(serial)),
    bootindex === undefined ? undefined : element('boot', { order: Number(bootindex) }),
    address,
  )
}

function sourceElement({ kind, name, path }: MachineBackend, isOptional: boolean): Element | undefined {
  if (kind === 'empty') return undefined
  const startupPolicy = isOptional ? 'optional' : undefined
  return element(
    'source',
    kind === 'volume' ? { pool: 'catalogue', volume: name, startupPolicy } : { file: path, startupPolicy },
  )
}

function tuning({ bytesPerSecond, iopsTotal }: MachineBackend['options']): Element | undefined {
  if (bytesPerSecond === undefined && iopsTotal === undefined) return undefined
  const rows = Object.entries({ total_bytes_sec: bytesPerSecond, total_iops_sec: iopsTotal })
  return element(
    'iotune',
    {},
    ...rows.map(([name, value]) => (value === undefined ? undefined : element(name, {}, String(value)))),
  )
}

/** The bus, and the name that the disk's place has in libvirt. */
function targetOf(
  key: string,
  device: MachineDevice,
  { devices }: Machine,
): { readonly bus: string; readonly dev: string } {
  const { address } = device
  if (address?.type !== 'drive') {
    const virtio = Object.entries(devices).filter(([, { model }]) => model === 'virtio-blk')
    return { bus: 'virtio', dev: `vd${letters(virtio.findIndex(([own]) => own === key))}` }
  }
  const type = devices[address.controller]?.kind.replace('-controller', '') ?? 'scsi'
  switch (type) {
    case 'ide':
      return { bus: type, dev: `hd${letters(address.bus * 2 + address.unit)}` }
    case 'sata':
      return { bus: type, dev: `sd${letters(address.unit + scsiDisks(devices))}` }
    default:
      return { bus: 'scsi', dev: `sd${letters(address.target)}` }
  }
}

/** Names of disks of SATA come after all those that SCSI may have. */
function scsiDisks(devices: Machine['devices']): number {
  const targets = Object.values(devices).flatMap(({ address, model }) =>
    address?.type === 'drive' && model.startsWith('scsi') ? [address.target + 1] : [],
  )
  return Math.max(0, ...targets)
}

/** a to z, then aa, ab and so on. */
function letters(index: number): string {
  const last = String.fromCharCode('a'.charCodeAt(0) + (index % 26))
  return index < 26 ? last : `${letters(Math.floor(index / 26) - 1)}${last}`
}
