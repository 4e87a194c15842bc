import { randomBytes, randomUUID } from 'node:crypto'
import { AgentError } from '../../base/errors.ts'
import {
  type Backend,
  type Device,
  File_Access,
  type Layer,
  type PlugRequest,
  type Specification,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import { withOwnHardware } from '../instance/documents/document-record.ts'
import { sizeOfBase } from '../instance/snapshots/check-layers.ts'
import { layersOfBackend } from '../instance/snapshots/layers.ts'
import { checkDepth, isImage } from '../instance/snapshots/plan-snapshot.ts'

/** What a clone begins with. */
export interface CloneRecord {
  readonly record: InstanceRecord
  /** Overlays to be made: the guest writes to these alone. */
  readonly added: readonly Layer[]
  /** The hardware addresses of the clone's cards, by those that its guest has from before. */
  readonly macs: ReadonlyMap<string, string>
}

/**
 * What a clone of a saved machine begins with: context id, hardware addresses, names of interfaces, identity of the board and
 * overlays of its own. `replaced` are the keys of backends that the caller has chosen. Clones of a template keep their hardware
 * address, as they keep their IP addresses: each is on a tap of its own, which nothing passes to another.
 */
export async function cloneRecord(
  saved: InstanceRecord,
  { replaced, ofTemplate }: { readonly replaced: ReadonlySet<string>; readonly ofTemplate: boolean },
): Promise<CloneRecord> {
  const { specification } = saved
  if (specification === undefined) throw new AgentError('FAILED_PRECONDITION', 'specification: not known yet')
  const macs = new Map<string, string>()
  const newMac = (mac: string) => {
    if (ofTemplate) return mac
    macs.set(mac, macs.get(mac) ?? randomMac())
    return macs.get(mac) ?? mac
  }
  const { kept, added } = await layersOf(saved, specification)
  return {
    macs,
    added,
    record: {
      ...saved,
      ...{ bootId: randomUUID(), cid: 0, clone: true, madeByClone: true },
      ...{ cameFrom: [], reboots: 0, rebootsMs: [], resets: [], snapshots: [] },
      lastLayer: saved.lastLayer + added.length,
      layers: [...kept, ...added],
      specification: {
        ...specification,
        devices: mapped(specification.devices, (device) => ownDevice(device, newMac)),
        backends: mapped(specification.backends, (backend, key) =>
          replaced.has(key) ? backend : ownBackend(backend),
        ),
      },
      document: saved.document && withOwnHardware(saved.document, newMac),
    },
  }
}

/** The request to plug in the device that was unplugged, for a clone. */
export function ownPlug(request: PlugRequest): PlugRequest {
  const { device } = request
  return device === undefined ? request : { ...request, device: ownDevice(device, (mac) => mac) }
}

function mapped<T>(
  record: Readonly<Record<string, T>>,
  change: (value: T, key: string) => T,
): Record<string, T> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value, key)]))
}

function ownDevice(device: Device, newMac: (mac: string) => string): Device {
  if (device.nic !== undefined) return { ...device, nic: { ...device.nic, mac: newMac(device.nic.mac) } }
  return device.vsock === undefined ? device : { ...device, vsock: { cid: 0 } }
}

/** A tap is one machine's. */
function ownBackend(backend: Backend): Backend {
  if (backend.tap === undefined) return backend
  return { ...backend, tap: { ...backend.tap, interfaceName: `mv${randomBytes(6).toString('hex')}` } }
}

/** Given by no maker, as QEMU's own are, and too many to be drawn twice. */
function randomMac(): string {
  return `52${[...randomBytes(5)].map((byte) => `:${byte.toString(16).padStart(2, '0')}`).join('')}`
}

/** The layers that the disks have, below new ones. */
async function layersOf(saved: InstanceRecord, { backends, devices }: Specification) {
  const kept: Layer[] = []
  const added: Layer[] = []
  for (const [key, { backend, disk }] of Object.entries(devices)) {
    const file = backends[backend]?.file
    if (disk === undefined || file?.access !== File_Access.READ_WRITE) continue
    const below = layersOfBackend(saved, backend)
    checkDepth(key, below.length, file.encryption !== undefined)
    const top = below.at(-1)
    const secret = file.encryption?.secret ?? ''
    const own = { base: file.path, qcow2Base: below[0]?.qcow2Base ?? isImage(saved, backend), secret }
    const sizeBytes = top?.sizeBytes ?? BigInt(await sizeOfBase(own))
    const id = saved.lastLayer + 1 + added.length
    kept.push(...below.map((layer) => ({ ...layer, active: false })))
    added.push({ id, parent: top?.id ?? 0, ...own, backend, sizeBytes, active: true, usedBytes: 0n })
  }
  return { kept, added }
}
