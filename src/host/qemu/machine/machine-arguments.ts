import {
  isPc,
  isQ35,
  type Machine,
  type MachineBackend,
  type MachineDevice,
  type Scalar,
} from '../../machine/machine.ts'
import type { Acceleration } from '../host.ts'
import { type Part, wordsOf } from '../parts.ts'
import { addressProperties, busesOf, qemuName } from './addresses.ts'

/** How a host provides a device: parts that QEMU needs before it, and properties that name them. */
export interface Provision {
  readonly parts: readonly Part[]
  readonly properties: Readonly<Record<string, Scalar>>
  /** Options of QEMU that make no device, such as a screen. */
  readonly words?: readonly string[]
  /** QEMU's device, where what stands behind it decides. */
  readonly model?: string
}

export interface MachineHost {
  readonly acceleration: Acceleration
  /** For a clock that is apart from UTC. */
  readonly nowMs: number
  readonly provide: (key: string, device: MachineDevice, backend: MachineBackend) => Provision
}

/**
 * QEMU's arguments for an expanded machine, paused and without QMP, so that it has all hardware that is written down and
 * no other.
 */
export function machineArguments(machine: Machine, host: MachineHost): readonly string[] {
  const { cpu, iothreads } = machine
  return [
    ...['-no-user-config', '-nodefaults', '-display', 'none', '-S'],
    ...['-machine', machineOption(machine), '-accel', host.acceleration, '-cpu', cpuOption(machine, host)],
    ...['-smp', smpOption(cpu), ...memoryWords(machine)],
    ...['-uuid', machine.uuid, '-rtc', rtcOption(machine, host.nowMs), ...smbiosWords(machine)],
    // Only KVM's PIT can make up for lost ticks.
    ...(host.acceleration === 'kvm' && machine.clock.timers.pit !== undefined
      ? ['-global', `kvm-pit.lost_tick_policy=${machine.clock.timers.pit}`]
      : []),
    ...Array.from({ length: iothreads }, (_, index) => ['-object', `iothread,id=iothread${index}`]).flat(),
    ...deviceWords(machine, host),
  ]
}

const onOff = (on: boolean) => (on ? 'on' : 'off')

function machineOption({ board, clock, firmware, memory, numa }: Machine): string {
  if (board.machine === 'microvm')
    return `microvm,acpi=${onOff(board.acpi)},rtc=on,pit=on,pic=on,isa-serial=on`
  const own = `usb=off,acpi=${onOff(board.acpi)},hpet=${onOff(clock.timers.hpet)},smm=${onOff(firmware.secureBoot)}`
  const backed = memory.hugePages !== undefined && numa.cells.length === 0 ? ',memory-backend=memory' : ''
  return `${board.machine},${own}${backed}`
}

/** A named model is given whole or not at all. */
function cpuOption({ clock, cpu, hyperv }: Machine, { acceleration }: MachineHost): string {
  const { features, match, model } = cpu
  const spinlocks = hyperv?.spinlockRetries
  // QEMU's emulation takes these words and does nothing.
  const isGiven = acceleration === 'kvm'
  const interfaces = [
    ...(hyperv?.relaxed ? ['hv-relaxed=on'] : []),
    ...(hyperv?.vapic ? ['hv-vapic=on'] : []),
    ...(spinlocks === undefined ? [] : [`hv-spinlocks=${spinlocks}`]),
    ...(clock.timers.hypervclock ? ['hv-time=on'] : []),
  ]
  const own = Object.entries(features).map(([name, on]) => `${name}=${onOff(on)}`)
  return [model, ...own, ...(isGiven ? interfaces : []), ...(match === 'exact' ? ['enforce'] : [])].join(',')
}

function smpOption({ count, present, topology }: Machine['cpu']): string {
  const { cores, sockets, threads } = topology
  return `${present},maxcpus=${count},sockets=${sockets},cores=${cores},threads=${threads}`
}

function memoryWords({ memory, numa }: Machine): readonly string[] {
  const { maximumMib, sizeMib, slots } = memory
  const room = maximumMib > sizeMib ? `,slots=${slots},maxmem=${maximumMib}M` : ''
  const backend = (id: string, mib: number) => {
    const huge = memory.hugePages
    const [type, pages] = huge
      ? ['memory-backend-memfd', `,hugetlb=on,hugetlbsize=${huge}`]
      : ['memory-backend-ram', '']
    return ['-object', `${type},id=${id},size=${mib}M${pages}`]
  }
  const cells = numa.cells.flatMap(({ cpus, memoryMib }, id) => {
    const numbers = cpus.map((cpu) => `,cpus=${cpu}`).join('')
    return [...backend(`cell${id}`, memoryMib), '-numa', `node,nodeid=${id}${numbers},memdev=cell${id}`]
  })
  const whole = memory.hugePages !== undefined && cells.length === 0 ? backend('memory', sizeMib) : []
  return ['-m', `${sizeMib}M${room}`, ...whole, ...cells]
}

function rtcOption({ clock: { adjustmentSeconds, timers } }: Machine, nowMs: number): string {
  const time = new Date(nowMs + adjustmentSeconds * 1000).toISOString().slice(0, 19)
  const drift = timers.rtc === 'catchup' ? ',driftfix=slew' : ''
  return `base=${adjustmentSeconds === 0 ? 'utc' : time}${drift}`
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
  const buses = busesOf(machine)
  return ordered.flatMap(([key, device]) => {
    const backend = device.backend === undefined ? undefined : machine.backends[device.backend]
    const provided = backend === undefined ? NOTHING : host.provide(key, device, backend)
    const { action, queues, ...own } = device.properties
    const watchdog = device.kind === 'watchdog' ? ['-action', `watchdog=${action}`] : []
    const multiple = typeof queues === 'number' ? { mq: true, vectors: 2 * queues + 2 } : {}
    const properties = {
      ...{ id: qemuName(key), ...addressProperties(machine, buses, device) },
      ...{ ...own, ...multiple, ...provided.properties },
    }
    const isDevice = device.builtIn !== true && device.kind !== 'display' && device.kind !== 'firmware-item'
    const part: Part = { option: 'device', type: typeOf(machine, device, provided), properties }
    return [
      ...provided.parts.flatMap(wordsOf),
      ...(provided.words ?? []),
      ...watchdog,
      ...(isDevice ? wordsOf(part) : []),
    ]
  })
}

const NOTHING: Provision = { parts: [], properties: {} }

/** A virtio device of machine `microvm` is no device of PCI. */
function typeOf(machine: Machine, { model }: MachineDevice, provided: Provision): string {
  const type = provided.model ?? model
  if (!/^(?:virtio|vhost)-/.test(type) || type === 'virtio-vga') return type
  return `${type}-${isPc(machine) || isQ35(machine) ? 'pci' : 'device'}`
}
