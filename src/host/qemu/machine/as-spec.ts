import { usesAddresses } from '../../machine/features/devices/network.ts'
import { FIRMWARE_KEYS, type Machine, type MachineDevice, type Scalar } from '../../machine/machine.ts'
import { presentCpus } from '../../machine/plugged-cpu.ts'
import {
  type Backend,
  type Device,
  NETWORK_FILTERS,
  type NetworkDisk,
  type NetworkFilter,
  type VmSpec,
} from '../../spec/spec.ts'
import { type SpecKey, specKey } from '../../spec/spec-key.ts'

/** What this host puts behind the devices of a machine, by the keys of the machine's backends and {@link FIRMWARE_KEYS}. */
export type Backends = Readonly<Record<string, Backend | NetworkDisk>>

/**
 * An expanded machine in the words of a specification, as far as it has them: its size, and the devices behind which this host
 * puts something. The places of the devices are those of the machine, not these.
 */
export function asSpec(machine: Machine, backends: Backends): VmSpec {
  const { board, cpu, firmware, memory } = machine
  const cpus = presentCpus(machine)
  const room = {
    cpus: cpu.count - cpus,
    memoryMib: memory.maximumMib - memory.sizeMib,
    memorySlots: memory.slots,
  }
  const devices = Object.entries(machine.devices).flatMap(([key, device]): readonly [SpecKey, Device][] => {
    const backend = device.backend === undefined ? undefined : backends[device.backend]
    const words = backend === undefined || isOfNetwork(backend) ? undefined : wordsOf(machine, device)
    return words === undefined ? [] : [[specKey(key), words]]
  })
  const pathOf = (key: string) => {
    const backend = backends[key]
    return backend?.kind === 'content' ? backend.path : undefined
  }
  const own = Object.entries(backends).filter(
    (each): each is [string, Backend] => Object.hasOwn(machine.backends, each[0]) && !isOfNetwork(each[1]),
  )
  return {
    board: {
      ...{ machine: board.machine, memoryMib: memory.sizeMib, cpus },
      ...((room.cpus > 0 || room.memoryMib > 0) && { room }),
      ...{ kernel: pathOf(FIRMWARE_KEYS.kernel), initrd: pathOf(FIRMWARE_KEYS.initrd) },
      ...{ commandLine: firmware.commandLine ?? '', firmware: firmware.type },
    },
    devices: Object.fromEntries(devices),
    backends: Object.fromEntries(own.map(([key, backend]) => [specKey(key), backend])),
  }
}

/** Specifications have no words for these. */
export function isOfNetwork(backend: Backend | NetworkDisk): backend is NetworkDisk {
  return backend.kind === 'network-disk'
}

function wordsOf(machine: Machine, device: MachineDevice): Device | undefined {
  const { kind, properties } = device
  const backend = specKey(device.backend ?? '')
  const text = (value: Scalar | undefined) => (value === undefined ? '' : String(value))
  switch (kind) {
    case 'disk':
    case 'cdrom':
      return {
        ...{ kind: 'disk', slot: 0, serial: text(properties.serial), backend },
        ...(machine.backends[backend]?.options.snapshot === false && { noSnapshot: true }),
      }
    case 'nic':
      return {
        ...{ kind: 'nic', slot: 0, mac: text(properties.mac), backend },
        ...(typeof properties.queues === 'number' && { queues: properties.queues }),
        ...filtersAndAddresses(machine, device),
      }
    case 'vsock':
      return { kind: 'vsock', slot: 0, cid: Number(properties['guest-cid'] ?? 0), backend }
    case 'console':
      return { kind: 'serial', backend }
    case 'share':
      return { kind: 'share', slot: 0, tag: text(properties.tag ?? properties.mount_tag), backend }
    case 'firmware-item':
      return { kind: 'fw-cfg', name: text(properties.name), backend }
    default:
      return undefined
  }
}

function filtersAndAddresses(machine: Machine, device: MachineDevice) {
  const filters = filtersOf(machine, device)
  const { addresses } = machine.backends[device.backend ?? '']?.options ?? {}
  if (typeof addresses === 'string') return { filters, addresses: addresses.split(',') }
  return { filters, addresses: usesAddresses(filters) ? addressesOfGuest(machine, device) : [] }
}

/** Those in the metadata, for the only card of a machine that was recorded before cards had their own. */
function addressesOfGuest({ backends, devices }: Machine, card: MachineDevice): readonly string[] {
  const others = Object.values(devices).filter((each) => each !== card && each.kind === 'nic')
  if (others.some(({ plugged }) => plugged !== true)) return []
  const { options } = Object.values(backends).find(({ kind }) => kind === 'metadata') ?? {}
  return [options?.v4, options?.v6].flatMap((each) =>
    typeof each === 'string' ? [each.replace(/\/.*/, '')] : [],
  )
}

function filtersOf({ backends }: Machine, { backend = '' }: MachineDevice): readonly NetworkFilter[] {
  const { filters } = backends[backend]?.options ?? {}
  const names = typeof filters === 'string' ? filters.split(',') : []
  const isWished = (name: NetworkFilter) => names.includes(name) || names.includes('clean-traffic')
  return NETWORK_FILTERS.filter(isWished)
}
