import { didYouMean } from '../../../base/suggest.mjs'
import { refuse, shown } from '../../spec/component-path.ts'
import { FIXED_MACHINES } from '../machine.ts'
import { diskWishes, networkWishes } from './device-wishes.ts'
import type { Domain } from './domain-shape.ts'

export interface DomainWishes {
  /** By the names of features, in their long form. */
  readonly wishes: Readonly<Record<string, unknown>>
  /** Where in the document the wishes of a feature are. */
  readonly paths: ReadonlyMap<string, string>
  readonly notes: readonly string[]
}

/** What the part `domain` wishes of each feature. Throws INVALID_ARGUMENT. */
export function domainWishes(domain: Domain, at: string): DomainWishes {
  const { cpu, devices, iothreads, memory, maxmemory, os, sysinfo, uuid, vcpu } = domain
  const machine = machineOf(os?.type.machine, `${at}.os.type.machine`)
  const rows: readonly (readonly [feature: string, path: string, wish: unknown])[] = [
    ['machine', 'os.type.machine', machine && { type: machine.type }],
    ['smbios', 'sysinfo', (sysinfo || uuid) && { ...sysinfo, uuid: uuidOf(domain, at) }],
    ['memory', 'memory', (memory || maxmemory) && memoryOf(domain, at)],
    [
      ...(['cpu', 'cpu'] as const),
      (cpu || vcpu) && {
        ...{ model: cpu?.model, match: cpu?.match, topology: cpu?.topology },
        ...{ count: vcpu?.count, present: vcpu?.current },
      },
    ],
    [
      ...(['numa', 'cpu.numa'] as const),
      cpu?.numa && {
        matchHost: false,
        cells: cpu.numa.map(({ cpus, memory: own }, index) => ({
          cpus,
          memory: mibOf(own, `${at}.cpu.numa[${index}].memory`),
        })),
      },
    ],
    ['iothreads', 'iothreads', iothreads === undefined ? undefined : { count: iothreads }],
    ['system', 'clock', systemOf(domain, at)],
    ['controllers', 'devices.controllers', devices?.controllers?.map(({ index: _, ...own }) => own)],
    ['storage', 'devices.disks', devices?.disks && diskWishes(devices.disks, `${at}.devices.disks`)],
    [
      'network',
      'devices.interfaces',
      devices?.interfaces && networkWishes(devices.interfaces, `${at}.devices.interfaces`),
    ],
    ['graphics', 'devices.graphics[0]', graphicsOf(domain, at)],
    ['rng', 'devices.rng', devices?.rng && { enabled: true, path: devices.rng.path }],
    [
      ...(['balloon', 'devices.memballoon'] as const),
      devices?.memballoon && {
        enabled: devices.memballoon.model === 'virtio',
        address: devices.memballoon.address,
      },
    ],
    ['input', 'devices.inputs', devices?.inputs],
    ['channel', 'devices.channels', channelsOf(domain, at)],
  ]
  const given = rows.filter(([, , wish]) => wish !== undefined)
  return {
    wishes: Object.fromEntries(given.map(([feature, , wish]) => [feature, wish])),
    paths: new Map(given.map(([feature, path]) => [feature, `${at}.${path}`])),
    notes: machine?.note === undefined ? [] : [machine.note],
  }
}

interface NamedMachine {
  readonly type: (typeof FIXED_MACHINES)[number]
  readonly note?: string
}

/** The machines of RHEL are not in Debian's QEMU: the one of the same chipset takes their place. */
function machineOf(name: string | undefined, at: string): NamedMachine | undefined {
  if (name === undefined) return undefined
  const type = FIXED_MACHINES.find((fixed) => fixed === name)
  if (type !== undefined) return { type }
  const chipset = /^pc-(i440fx|q35)-rhel[\d.]+$/.exec(name)?.[1]
  if (chipset === undefined) {
    return refuse(
      at,
      `${shown(name)}: unknown machine${didYouMean(name, FIXED_MACHINES, `want ${FIXED_MACHINES.join(', ')}`)}`,
    )
  }
  const replacement = chipset === 'q35' ? 'pc-q35-7.2' : 'pc-i440fx-7.2'
  return { type: replacement, note: `${name}: not a machine of this QEMU, which gives ${replacement}` }
}

/** A machine has one UUID. */
function uuidOf({ sysinfo, uuid }: Domain, at: string): string | undefined {
  if (
    uuid !== undefined &&
    sysinfo?.uuid !== undefined &&
    uuid.toLowerCase() !== sysinfo.uuid.toLowerCase()
  ) {
    refuse(`${at}.sysinfo.uuid`, `${sysinfo.uuid}: want that of ${at}.uuid, ${uuid}`)
  }
  return sysinfo?.uuid ?? uuid
}

function memoryOf({ maxmemory, memory }: Domain, at: string): unknown {
  const maximum = maxmemory && mibOf(maxmemory.size, `${at}.maxmemory.size`)
  return { size: memory?.size, current: memory?.current, maximum, slots: maxmemory?.slots }
}

function mibOf(sizeKib: number, at: string): number {
  return sizeKib % 1024 === 0 ? sizeKib / 1024 : refuse(at, `${sizeKib} KiB: want whole MiB`)
}

function systemOf({ clock, clockAdjustment, features, os }: Domain, at: string): unknown {
  if (clock === undefined && clockAdjustment === undefined && features === undefined) return undefined
  const timers: Record<string, unknown> = {}
  for (const [index, { present, tickPolicy, timer }] of (clock ?? []).entries()) {
    const isTicking = timer === 'rtc' || timer === 'pit'
    const field = `${at}.clock[${index}]`
    if (timer in timers) refuse(`${field}.timer`, `${timer}: given twice`)
    if (isTicking && (tickPolicy === undefined || present !== undefined))
      refuse(field, `${timer}: want a tickPolicy alone`)
    if (!isTicking && (present === undefined || tickPolicy !== undefined))
      refuse(field, `${timer}: want present alone`)
    if (timer === 'rtc' && tickPolicy === 'discard')
      refuse(`${field}.tickPolicy`, 'discard: want catchup or delay')
    timers[timer] = isTicking ? tickPolicy : present
  }
  const acpi = features === undefined ? undefined : features.some(({ feature }) => feature === 'acpi')
  const odd = features?.findIndex((own) => own.feature === 'acpi' && Object.keys(own).length > 1) ?? -1
  if (odd >= 0) refuse(`${at}.features[${odd}]`, 'acpi has no fields')
  const hyperv = features?.find(({ feature }) => feature === 'hyperv')
  const spinlockRetries = hyperv?.spinlocks?.state === false ? undefined : hyperv?.spinlocks?.retries
  return {
    ...{ arch: os?.type.arch, acpi, clock: { adjustment: clockAdjustment, timers } },
    hyperv: hyperv && { relaxed: hyperv.relaxed, vapic: hyperv.vapic, spinlockRetries },
  }
}

function graphicsOf({ devices }: Domain, at: string): unknown {
  const [screen] = devices?.graphics ?? []
  const [video] = devices?.video ?? []
  if (screen === undefined) return video && refuse(`${at}.devices.video`, 'wants graphics')
  const { type, listen, passwd, passwdValidTo } = screen
  // The secret has the name of the device.
  const password = passwd === undefined ? undefined : 'display0'
  const { type: model, ...own } = video ?? { type: undefined }
  return {
    enabled: true,
    ...{ type, listen: listen?.network, password, passwordValidTo: passwdValidTo },
    video: model,
    ...own,
  }
}

function channelsOf({ devices }: Domain, at: string): unknown {
  return devices?.channels?.map(({ source, target, type }, index) => {
    const isSpice = target.name === 'com.redhat.spice.0'
    const field = `${at}.devices.channels[${index}]`
    if ((type === 'spicevmc') !== isSpice) refuse(`${field}.type`, `${type}: not that of ${target.name}`)
    if (isSpice && source !== undefined) refuse(`${field}.source`, 'a channel of type spicevmc has none')
    return { name: target.name, path: source?.path }
  })
}
