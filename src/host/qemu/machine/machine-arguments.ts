import { AgentError } from '../../../base/errors.ts'
import { present } from '../../machine/features/draft.ts'
import {
  isPc,
  isQ35,
  type Machine,
  type MachineBackend,
  type MachineDevice,
  type Scalar,
} from '../../machine/machine.ts'
import type { SavedMemory } from '../../spec/spec.ts'
import type { Acceleration } from '../host.ts'
import { type Part, wordsOf } from '../parts.ts'
import type { MemoryOpener } from '../parts-host.ts'
import { memoryBackend } from '../qemu-arguments.ts'
import { addressProperties, busesOf, qemuName } from './addresses.ts'

/** How a host provides a device: parts that QEMU needs before it, and properties that name them. */
export interface Provision {
  readonly parts: readonly Part[]
  /** An undefined one takes the machine's own away. */
  readonly properties: Readonly<Record<string, Scalar | undefined>>
  /** Options of QEMU that make no device, such as a screen. */
  readonly words?: readonly string[]
  /** QEMU's device, where what stands behind it decides. */
  readonly model?: string
}

export interface MachineHost {
  readonly acceleration: Acceleration
  /** For a clock that is apart from UTC, and by how much local time is ahead of that. */
  readonly nowMs: number
  readonly zoneSeconds?: number
  readonly provide: (key: string, device: MachineDevice, backend: MachineBackend) => Provision
  /** Whether daemons read and write the guest's memory themselves. The guest does not see it. */
  readonly isShared?: boolean
  /** What the guest's memory begins with. */
  readonly memory?: SavedMemory | undefined
  readonly opener?: MemoryOpener | undefined
  /** The node of the host that memory is to be on, for each cell, or for the whole. Others take over when it is full. */
  readonly memoryNodes?: readonly (number | undefined)[]
  /** What a vmgenid device shows the guest: a UUID; QEMU chooses one by default. */
  readonly generationId?: string | undefined
  /** QEMU's words for the firmware and what that loads. */
  readonly firmwareWords?: readonly string[]
}

/**
 * QEMU's arguments for an expanded machine, paused and without QMP, so that it has all hardware that is written down and
 * no other.
 */
export function machineArguments(machine: Machine, host: MachineHost): readonly string[] {
  const { cpu, iothreads } = machine
  return [
    ...['-no-user-config', '-nodefaults', '-display', 'none', '-S'],
    ...['-machine', machineOption(machine, host), '-accel', host.acceleration],
    ...['-cpu', cpuOption(machine, host), '-smp', smpOption(cpu), ...memoryWords(machine, host)],
    ...(host.firmwareWords ?? []),
    ...['-uuid', machine.uuid, '-rtc', rtcOption(machine, host), ...smbiosWords(machine)],
    // Only KVM's PIT can make up for lost ticks.
    ...(host.acceleration === 'kvm' && machine.clock.timers.pit !== undefined
      ? ['-global', `kvm-pit.lost_tick_policy=${machine.clock.timers.pit}`]
      : []),
    ...Array.from({ length: iothreads }, (_, index) => ['-object', `iothread,id=iothread${index}`]).flat(),
    ...deviceWords(machine, host),
  ]
}

const onOff = (on: boolean) => (on ? 'on' : 'off')

function machineOption(machine: Machine, host: MachineHost): string {
  const { board, clock, firmware } = machine
  const backed = hasOneBackend(machine, host) ? ',memory-backend=memory' : ''
  if (board.machine === 'microvm')
    return `microvm,acpi=${onOff(board.acpi)},rtc=on,pit=on,pic=on,isa-serial=on${backed}`
  const own = `usb=off,acpi=${onOff(board.acpi)},hpet=${onOff(clock.timers.hpet)},smm=${onOff(firmware.secureBoot)}`
  return `${board.machine},${own}${backed}`
}

/** A named model is given whole or not at all. */
function cpuOption({ clock, cpu, hyperv }: Machine, { acceleration }: MachineHost): string {
  const { expansion, features, match, model } = cpu
  const spinlocks = hyperv?.spinlockRetries
  // QEMU's emulation takes these words and does nothing.
  const isGiven = acceleration === 'kvm'
  const interfaces = [
    ...(hyperv?.relaxed ? ['hv-relaxed=on'] : []),
    ...(hyperv?.vapic ? ['hv-vapic=on'] : []),
    ...(spinlocks === undefined ? [] : [`hv-spinlocks=${spinlocks}`]),
    ...(clock.timers.hypervclock ? ['hv-time=on'] : []),
  ]
  const named = [model, ...Object.entries(features).map(([name, on]) => `${name}=${onOff(on)}`)]
  return [
    ...(expansion === undefined ? named : ['base', ...Object.entries(expansion).map(propertyOf)]),
    ...(isGiven ? interfaces : []),
    ...(match === 'exact' ? ['enforce'] : []),
  ].join(',')
}

function propertyOf([name, value]: readonly [string, Scalar]): string {
  return `${name}=${typeof value === 'boolean' ? onOff(value) : String(value).replaceAll(',', ',,')}`
}

function smpOption({ count, present, topology }: Machine['cpu']): string {
  const { cores, sockets, threads } = topology
  return `${present},maxcpus=${count},sockets=${sockets},cores=${cores},threads=${threads}`
}

/** Whether all memory is one object of QEMU. */
function hasOneBackend({ memory, numa }: Machine, { isShared, memory: saved }: MachineHost): boolean {
  if (saved !== undefined) checkSavedMemory({ memory, numa })
  return (
    (memory.hugePages !== undefined || isShared === true || saved !== undefined) && numa.cells.length === 0
  )
}

/** A saved memory is one file of ordinary pages. */
function checkSavedMemory({ memory, numa }: Pick<Machine, 'memory' | 'numa'>): void {
  const refuse = (at: string, text: string) => {
    throw new AgentError('FAILED_PRECONDITION', `${at}: ${text}`)
  }
  if (memory.hugePages !== undefined) refuse('memory.hugePages', 'not possible for memory that was saved')
  if (numa.cells.length > 0) refuse('numa.cells', 'not possible for memory that was saved')
}

function memoryWords(machine: Machine, host: MachineHost): readonly string[] {
  const { memory, numa } = machine
  const { maximumMib, sizeMib, slots } = memory
  const room = maximumMib > sizeMib ? `,slots=${slots},maxmem=${maximumMib}M` : ''
  const backend = (id: string, mib: number, cell = 0) => {
    const huge = memory.hugePages
    const type = huge || host.isShared ? 'memory-backend-memfd' : 'memory-backend-ram'
    const pages = huge ? `,hugetlb=on,hugetlbsize=${huge}` : ''
    const node = host.memoryNodes?.[cell]
    const place = node === undefined ? '' : `,host-nodes=${node},policy=preferred`
    return ['-object', `${type},id=${id},size=${mib}M${pages}${host.isShared ? ',share=on' : ''}${place}`]
  }
  const cells = numa.cells.flatMap(({ cpus, memoryMib }, id) => {
    const numbers = cpus.map((cpu) => `,cpus=${cpu}`).join('')
    return [...backend(`cell${id}`, memoryMib, id), '-numa', `node,nodeid=${id}${numbers},memdev=cell${id}`]
  })
  const { memory: saved, opener } = host
  const whole = saved
    ? memoryBackend('memory', sizeMib, { saved, opener })
    : hasOneBackend(machine, host)
      ? backend('memory', sizeMib)
      : []
  return ['-m', `${sizeMib}M${room}`, ...whole, ...cells]
}

function rtcOption({ clock }: Machine, { nowMs, zoneSeconds = 0 }: MachineHost): string {
  const { adjustmentSeconds, basis, timers } = clock
  const seconds = adjustmentSeconds + (basis === 'localtime' ? zoneSeconds : 0)
  const time = new Date(nowMs + seconds * 1000).toISOString().slice(0, 19)
  const drift = timers.rtc === 'catchup' ? ',driftfix=slew' : ''
  return `base=${seconds === 0 ? 'utc' : time}${drift}`
}

function smbiosWords({ smbios }: Machine): readonly string[] {
  const words = Object.entries(smbios).map(([name, value]) => `${name}=${value}`)
  return words.length === 0 ? [] : ['-smbios', ['type=1', ...words].join(',')]
}

/** Ports and bridges come before what is behind them, and controllers before disks. */
function deviceWords(machine: Machine, host: MachineHost): readonly string[] {
  const rank = ({ kind }: MachineDevice) =>
    kind === 'root-port' || kind === 'pci-bridge' ? 0 : kind.endsWith('-controller') ? 1 : 2
  const ordered = Object.entries(machine.devices).sort(([, a], [, b]) => rank(a) - rank(b))
  return ordered.flatMap(([key, { kind, properties }]) => {
    const { parts, words } = machineDeviceParts(machine, key, host)
    const watchdog = kind === 'watchdog' ? ['-action', `watchdog=${properties.action}`] : []
    return [...words, ...watchdog, ...parts.flatMap(wordsOf)]
  })
}

/** What QEMU needs for one device of a machine, in the order in which it has to be made, and options that make none. */
export function machineDeviceParts(
  machine: Machine,
  key: string,
  host: Pick<MachineHost, 'provide' | 'generationId'>,
): { readonly parts: readonly Part[]; readonly words: readonly string[] } {
  const device = machine.devices[key]
  if (device === undefined) throw new AgentError('INTERNAL', `device ${key}: not in the machine`)
  const backend = device.backend === undefined ? undefined : machine.backends[device.backend]
  const provided = backend === undefined ? NOTHING : host.provide(key, device, backend)
  const { action: _, queues, ...own } = device.properties
  const multiple = typeof queues === 'number' ? { mq: true, vectors: 2 * queues + 2 } : {}
  const properties = present({
    ...{ id: qemuName(key), ...addressProperties(machine, busesOf(machine), device) },
    ...{ ...own, ...multiple, ...provided.properties },
    ...(device.kind === 'generation-id' && { guid: host.generationId ?? 'auto' }),
  })
  const isDevice = device.builtIn !== true && device.kind !== 'display' && device.kind !== 'firmware-item'
  const part: Part = { option: 'device', type: typeOf(machine, device, provided), properties }
  return { parts: [...provided.parts, ...(isDevice ? [part] : [])], words: provided.words ?? [] }
}

const NOTHING: Provision = { parts: [], properties: {} }

/** A virtio device of machine `microvm` is no device of PCI. A CPU is one like the others. */
export function typeOf(
  machine: Machine,
  { kind, model }: Pick<MachineDevice, 'kind' | 'model'>,
  provided: Pick<Provision, 'model'> = {},
): string {
  const { cpu } = machine
  if (kind === 'cpu') return `${cpu.expansion === undefined ? cpu.model : 'base'}-x86_64-cpu`
  const type = provided.model ?? model
  if (!/^(?:virtio|vhost)-/.test(type) || type === 'virtio-vga') return type
  return `${type}-${isPc(machine) || isQ35(machine) ? 'pci' : 'device'}`
}
