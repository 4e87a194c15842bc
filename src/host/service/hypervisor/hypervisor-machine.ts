import { createHash } from 'node:crypto'
import { AgentError } from '../../../base/errors.ts'
import { familyOf, type IpFamily, parseIp } from '../../../base/ip-address.ts'
import { checkLinks, METADATA_ITEM } from '../../../base/vm-metadata/point-to-point.ts'
import {
  Backend,
  type DeepPartial,
  Device,
  File_Access,
  type Specification,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { VMMetadata, type VMSpec } from '../../../gen/vm.ts'
import { pathOf } from '../../spec/component-path.ts'

/** The host's ends of the links, unless the caller names others. */
const DEFAULT_PEERS: Readonly<Record<IpFamily, string>> = {
  ipv4: '169.254.1.1',
  ipv6: 'fd6d:6963:726f:766d::1',
}

/** Keys of what VMSpec adds to a machine. */
export const KEYS = {
  root: 'root',
  metadata: ['vm-metadata', 'vm-metadata-content'],
  card: ['vm-card', 'vm-tap'],
} as const

/** What the guest is told. Throws INVALID_ARGUMENT for addresses that it could not use. */
export function metadataOf({ name, address }: VMSpec, peers: readonly string[]): VMMetadata {
  checkPeers(peers)
  const peerOf = (family: IpFamily) => peers.find((text) => isOf(family, text)) ?? DEFAULT_PEERS[family]
  const linkOf = (family: IpFamily) => {
    const ip = address.find((text) => isOf(family, text))
    const whole = family === 'ipv4' ? /\/32$/ : /\/128$/
    return ip === undefined ? undefined : { ip: ip.replace(whole, ''), peerIp: peerOf(family) }
  }
  const networkConfig = { v4: linkOf('ipv4'), v6: linkOf('ipv6') }
  const [problem] = checkLinks(networkConfig).problems
  if (problem !== undefined) throw invalid(`VM_SPEC: address: ${problem}`)
  return VMMetadata.create({ name, networkConfig })
}

function checkPeers(peers: readonly string[]): void {
  const families = peers.map((text) => {
    const address = parseIp(text)
    if (address === undefined) throw invalid(`--peer: ${JSON.stringify(text)} is no IP address`)
    return familyOf(address)
  })
  if (new Set(families).size < families.length) throw invalid('--peer: want at most one of each family')
}

function isOf(family: IpFamily, text: string): boolean {
  const address = parseIp(text.replace(/\/.*$/, ''))
  return address !== undefined && familyOf(address) === family
}

/** The machine with the firmware item of its metadata and, when it has addresses and no card, a card with a tap. */
export function machineOf(machine: Specification, vm: VMSpec, metadataPath: string): Specification {
  const devices = Object.values(machine.devices)
  if (devices.some(({ firmwareItem }) => firmwareItem?.name === METADATA_ITEM))
    throw invalid(`--machine: has a firmware item ${METADATA_ITEM}, which VM_SPEC gives`)
  const told = withPart(machine, KEYS.metadata, {
    device: { firmwareItem: { name: METADATA_ITEM } },
    backend: { content: { path: metadataPath } },
  })
  return vm.address.length === 0 ? told : withCard(told, vm)
}

function withPart(
  machine: Specification,
  [key, backend]: readonly [string, string],
  part: { readonly device: DeepPartial<Device>; readonly backend: DeepPartial<Backend> },
): Specification {
  const { devices, backends } = machine
  if (Object.hasOwn(devices, key)) throw given(`devices.${key}`)
  if (Object.hasOwn(backends, backend)) throw given(`backends.${backend}`)
  return {
    ...machine,
    devices: { ...devices, [key]: Device.fromPartial({ ...part.device, backend }) },
    backends: { ...backends, [backend]: Backend.fromPartial(part.backend) },
  }
}

function given(path: string): AgentError {
  return invalid(`--machine: ${path}: VM_SPEC gives it, want another key`)
}

function withCard(machine: Specification, vm: VMSpec): Specification {
  if (hasCard(machine)) return machine
  const tap = tapOf(vm)
  return withPart(machine, KEYS.card, {
    device: { slot: freeSlot(Object.values(machine.devices)), nic: { mac: tap.mac } },
    backend: { tap: { interfaceName: tap.name } },
  })
}

/** Whether the machine has the one card with a tap that gets the addresses. Throws INVALID_ARGUMENT where others are in its way. */
export function hasCard(machine: Specification): boolean {
  const devices = Object.values(machine.devices)
  const cards = devices.filter(({ nic }) => nic !== undefined)
  const taps = cards.filter(({ backend }) => machine.backends[backend]?.tap !== undefined)
  const [card, ...others] = taps
  if (card !== undefined && others.length === 0) {
    // The bridge would need the address.
    if (machine.backends[card.backend]?.tap?.bridge)
      throw invalid(
        `--machine: ${pathOf('backends', card.backend, 'tap', 'bridge')}: not possible with an address of VM_SPEC`,
      )
    return true
  }
  if (cards.length > 0)
    throw invalid(`VM_SPEC: address: the machine has ${taps.length} cards with a tap, want one or no card`)
  return false
}

/** The tap of a card that VMSpec adds. */
export function tapOf(vm: VMSpec): { readonly name: string; readonly mac: string } {
  const digest = digestOf(vm)
  // Locally administered.
  const mac = `52:54:00:${digest.slice(0, 2)}:${digest.slice(2, 4)}:${digest.slice(4, 6)}`
  return { mac, name: `vm-${digest.slice(0, 8)}` }
}

/** 64 hexadecimal digits of this VM. */
export function digestOf({ name, namespace }: VMSpec): string {
  return createHash('sha256').update(`${namespace}/${name}`).digest('hex')
}

const LAST_SLOT = 30

/** From the last on, to leave the others to the disks, whose order counts. */
function freeSlot(devices: readonly Device[]): number {
  for (let slot = LAST_SLOT; slot >= 2; slot--) if (devices.every((each) => each.slot !== slot)) return slot
  throw invalid('--machine: all PCI slots are in use, want one for the card of VM_SPEC')
}

/**
 * The file of the root block device; undefined when a kernel boots without one. Throws INVALID_ARGUMENT when the firmware
 * would boot another disk, or when the image cannot be written to it.
 */
export function rootFileOf(machine: Specification, isImageWanted: boolean): string | undefined {
  const { [KEYS.root]: root } = machine.devices
  const hasKernel = (machine.board?.kernel ?? '') !== ''
  if (root === undefined && hasKernel && !isImageWanted) return undefined
  const file = root?.disk === undefined ? undefined : machine.backends[root.backend]?.file
  if (root === undefined || file === undefined)
    throw invalid('--machine: devices.root: no disk with a file, want the root block device')
  const disks = Object.values(machine.devices).filter(({ disk }) => disk !== undefined)
  if (!hasKernel && disks.some(({ slot, port }) => port === '' && slot < root.slot))
    throw invalid('--machine: devices.root.slot: want the lowest of the disks, which the firmware boots')
  if (isImageWanted && file.access !== File_Access.READ_WRITE)
    throw invalid(`--machine: backends.${root.backend}.file.access: want READ_WRITE for the initial image`)
  return file.path
}

export function invalid(message: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', message)
}
