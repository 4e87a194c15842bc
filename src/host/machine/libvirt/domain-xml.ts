import { refuse } from '../../spec/component-path.ts'
import type { Machine } from '../machine.ts'
import { presentCpus } from '../plugged-cpu.ts'
import { deviceElements } from './device-elements.ts'
import { type Element, element, xmlText } from './element.ts'

/**
 * The machine as libvirt's domain XML. What stands behind a disk is a volume of a pool named `catalogue`. Throws
 * INVALID_ARGUMENT that names what libvirt 9.0 has no words for.
 */
export function domainXml(machine: Machine): string {
  const { board, cpu, iothreads, memory, name, numa } = machine
  if (board.machine === 'microvm') refuse('board.machine', 'libvirt knows no addresses of machine microvm')
  if (numa.matchHost && numa.cells.length === 0)
    refuse('numa.matchHost', 'libvirt wants cells: without a host there are none')
  if (cpu.exclusive !== undefined)
    refuse('cpu.exclusive', 'libvirt wants the numbers of CPUs: without a host there are none')
  const hasGenerationId = Object.values(machine.devices).some(({ kind }) => kind === 'generation-id')
  const hasRoom = memory.maximumMib > memory.sizeMib
  const cpus = presentCpus(machine)
  return xmlText(
    element(
      'domain',
      { type: 'kvm' },
      element('name', {}, name ?? 'machine'),
      element('uuid', {}, machine.uuid),
      ...(hasGenerationId ? [element('genid')] : []),
      kib('memory', memory.sizeMib),
      kib('currentMemory', memory.currentMib),
      hasRoom ? kib('maxMemory', memory.maximumMib, { slots: memory.slots }) : undefined,
      hugePages(machine),
      iothreads > 0 ? element('iothreads', {}, String(iothreads)) : undefined,
      element('vcpu', { current: cpus < cpu.count ? cpus : undefined }, String(cpu.count)),
      sysinfo(machine),
      system(machine),
      features(machine),
      processor(machine),
      clock(machine),
      element('devices', {}, ...deviceElements(machine)),
    ),
  )
}

function kib(name: string, mib: number, attributes: Element['attributes'] = {}): Element {
  return element(name, { ...attributes, unit: 'KiB' }, String(mib * 1024))
}

function hugePages({ memory: { hugePages: size } }: Machine): Element | undefined {
  if (size === undefined) return undefined
  const page = element('page', { size: size.slice(0, -1), unit: size === '2M' ? 'MiB' : 'GiB' })
  return element('memoryBacking', {}, element('hugepages', {}, page))
}

function sysinfo({ smbios, uuid }: Machine): Element {
  const entries = Object.entries({ ...smbios, uuid })
  const system = entries.map(([name, value]) => element('entry', { name }, value))
  return element('sysinfo', { type: 'smbios' }, element('system', {}, ...system))
}

function system({ board, firmware }: Machine): Element {
  if (firmware.kernel !== undefined)
    refuse('firmware.kernel', 'libvirt takes a path: without a host there is none')
  const isUefi = firmware.type === 'uefi'
  return element(
    'os',
    { firmware: isUefi ? 'efi' : undefined },
    element('type', { arch: board.architecture, machine: board.machine }, 'hvm'),
    isUefi ? element('loader', { secure: firmware.secureBoot ? 'yes' : 'no' }) : undefined,
    element('smbios', { mode: 'sysinfo' }),
  )
}

const state = (on: boolean) => ({ state: on ? 'on' : 'off' })

function features({ board, firmware, hyperv }: Machine): Element {
  const retries = hyperv?.spinlockRetries
  return element(
    'features',
    {},
    board.acpi ? element('acpi') : undefined,
    hyperv &&
      element(
        'hyperv',
        {},
        element('relaxed', state(hyperv.relaxed)),
        element('vapic', state(hyperv.vapic)),
        retries === undefined ? undefined : element('spinlocks', { ...state(true), retries }),
      ),
    firmware.secureBoot ? element('smm', state(true)) : undefined,
  )
}

function processor({ cpu, memory, numa }: Machine): Element {
  const { features: wished, match, model, topology } = cpu
  const { cores, sockets, threads } = topology
  const mode = model === 'host' ? 'host-passthrough' : 'maximum'
  // QEMU makes a cell of everything where memory may be added; libvirt wants it in words.
  const whole = { cpus: [`0-${cpu.count - 1}`], memoryMib: memory.sizeMib }
  const hasRoom = memory.maximumMib > memory.sizeMib
  const written = numa.cells.length === 0 && hasRoom ? [whole] : numa.cells
  const cells = written.map(({ cpus, memoryMib }, id) =>
    element('cell', { id, cpus: cpus.join(','), memory: memoryMib * 1024, unit: 'KiB' }),
  )
  return element(
    'cpu',
    match === 'exact' ? { mode: 'custom', match } : { mode },
    match === 'exact' ? element('model', {}, model) : undefined,
    element('topology', { sockets, cores, threads }),
    ...Object.entries(wished).map(([name, on]) =>
      element('feature', { policy: on ? 'require' : 'disable', name }),
    ),
    cells.length === 0 ? undefined : element('numa', {}, ...cells),
  )
}

function clock({ clock: { adjustmentSeconds, basis, timers } }: Machine): Element {
  const present = (on: boolean) => ({ present: on ? 'yes' : 'no' })
  return element(
    'clock',
    { offset: 'variable', adjustment: adjustmentSeconds, basis },
    timers.rtc && element('timer', { name: 'rtc', tickpolicy: timers.rtc }),
    timers.pit && element('timer', { name: 'pit', tickpolicy: timers.pit }),
    element('timer', { name: 'hpet', ...present(timers.hpet) }),
    timers.hypervclock ? element('timer', { name: 'hypervclock', ...present(true) }) : undefined,
  )
}
