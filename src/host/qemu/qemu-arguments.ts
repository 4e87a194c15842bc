import { checkSpec, needsSharedMemory } from '../spec/check-spec.ts'
import { devicesInOrder } from '../spec/device-order.ts'
import {
  type Board,
  type Chipset,
  chipsetOf,
  type Machine,
  type NvdimmDevice,
  type SavedMemory,
  type VmSpec,
} from '../spec/spec.ts'
import { deviceParts } from './device-parts.ts'
import type { Acceleration } from './host.ts'
import { type Part, wordsOf } from './parts.ts'
import type { MemoryOpener, Opener, PartsHost } from './parts-host.ts'

/** The facts of this host, and of this start, that QEMU's arguments depend on besides the specification. */
export interface QemuHost extends PartsHost {
  readonly acceleration: Acceleration
  readonly opener?: (Opener & MemoryOpener) | undefined
  /** QEMU's descriptor of a socket for QMP, which is connected or listens, or the path of the one that QEMU makes. */
  readonly qmp: { readonly fd: number; readonly listens?: true } | { readonly socket: string }
  /** Rate of this machine's time stamp counter in kHz; undefined when unknown. */
  readonly tscKhz?: number | undefined
  /** Whether the guest waits for `cont` before its first instruction. */
  readonly isPaused?: boolean
  /**
   * Whether the machine is kept after its first run: then its guest may reboot and tells QEMU of a panic, and daemons that
   * read and write its memory can be plugged in. QEMU would take their devices without shared memory too, and not tell.
   */
  readonly isKept?: boolean
  /** Where UEFI keeps its variables: a copy of {@link OVMF}'s for this machine. Without it they end with QEMU. */
  readonly variables?: string | undefined
}

/** QEMU's arguments for `spec`, without the program's name. Throws INVALID_ARGUMENT as {@link checkSpec} does. */
export function qemuArguments(spec: VmSpec, host: QemuHost): readonly string[] {
  checkSpec(spec)
  const shared = host.isKept === true || needsSharedMemory(spec.backends)
  return [
    // Only what is written here: no configuration file, no default devices, no screen.
    ...['-no-user-config', '-nodefaults', '-display', 'none', ...(host.isKept ? [] : ['-no-reboot'])],
    ...SANDBOX,
    ...(host.isPaused ? ['-S'] : []),
    ...boardArguments(spec.board, host, { shared, saved: spec.memory, nvdimms: nvdimmsOf(spec) }),
    ...controlArguments(host.qmp),
    ...(host.isKept ? panicDevice(chipsetOf(spec.board.machine)) : []).flatMap(wordsOf),
    ...(spec.board.generationId ? [generationDevice(host)] : []).flatMap(wordsOf),
    ...devicesInOrder(spec).flatMap(([key]) => deviceParts(spec, key, host).flatMap(wordsOf)),
  ]
}

/** Arguments of a QEMU without a machine, which opens what QMP tells it to. */
export function blockArguments({ qmp }: Pick<QemuHost, 'qmp'>): readonly string[] {
  return [
    ...['-no-user-config', '-nodefaults', '-display', 'none', ...SANDBOX, '-machine', 'none'],
    ...controlArguments(qmp),
  ]
}

/** The system calls of all four groups that QEMU 7.2 can do without end it: it starts no program and changes no user. */
export const SANDBOX: readonly string[] = [
  '-sandbox',
  'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
]

/** By which QEMU is controlled. */
export function controlArguments(qmp: QemuHost['qmp']): readonly string[] {
  const properties = { id: 'qmp', ...qmpSocket(qmp) }
  return [...wordsOf({ option: 'chardev', type: 'socket', properties }), '-mon', 'qmp,mode=control']
}

function qmpSocket(qmp: QemuHost['qmp']): Part['properties'] {
  if ('socket' in qmp) return { path: qmp.socket, server: true, wait: false }
  return { fd: qmp.fd, ...(qmp.listens && { server: true, wait: false }) }
}

/** Slot 1 of q35 is no device's. Machine `microvm` has no such device; its panics are in the console's text. */
function panicDevice(chipset: Chipset): readonly Part[] {
  if (chipset === 'microvm') return []
  const [type, place] = chipset === 'q35' ? ['pvpanic-pci', { addr: '0x1' }] : ['pvpanic', {}]
  return [{ option: 'device', type, properties: { id: 'pvpanic', ...place } }]
}

/** On no bus. */
function generationDevice({ generationId = 'auto' }: PartsHost): Part {
  return { option: 'device', type: 'vmgenid', properties: { id: 'vmgenid', guid: generationId } }
}

interface BoardNeeds {
  /** Whether a vhost-user daemon reads and writes the guest's memory itself. */
  readonly shared: boolean
  readonly saved: SavedMemory | undefined
  readonly nvdimms: readonly NvdimmDevice[]
}

function nvdimmsOf({ devices }: VmSpec): readonly NvdimmDevice[] {
  return Object.values(devices).flatMap((device) => (device.kind === 'nvdimm' ? [device] : []))
}

function boardArguments(board: Board, host: QemuHost, needs: BoardNeeds): readonly string[] {
  const { saved, shared, nvdimms } = needs
  const memory = shared || saved ? ',memory-backend=memory' : ''
  const nvdimm = board.room === undefined && nvdimms.length === 0 ? '' : ',nvdimm=on'
  return [
    ...['-machine', `${board.machine},${MACHINE_OPTIONS[chipsetOf(board.machine)]}${memory}${nvdimm}`],
    ...accelerationArguments(board, host),
    ...['-smp', cpuOption(board), '-m', memoryOption(board, nvdimms)],
    ...(shared || saved ? memoryBackend('memory', board.memoryMib, { saved, opener: host.opener }) : []),
    ...(board.kernel === undefined
      ? firmwareArguments(board, host)
      : kernelArguments(board, board.kernel, host)),
  ]
}

/** A whole memory of QEMU's, which a daemon can map too unless it is private. */
export function memoryBackend(
  id: string,
  sizeMib: number,
  { saved, opener }: { readonly saved: SavedMemory | undefined; readonly opener: MemoryOpener | undefined },
): readonly string[] {
  const common = { id, size: `${sizeMib}M` }
  const properties =
    saved === undefined
      ? { ...common, share: true }
      : { ...common, 'mem-path': opener?.memory(saved) ?? saved.path, share: false }
  const type = saved === undefined ? 'memory-backend-memfd' : 'memory-backend-file'
  return wordsOf({ option: 'object', type, properties })
}

function kernelArguments(board: Board, kernel: string, host: QemuHost): readonly string[] {
  const opened = (path: string) => host.opener?.read(path) ?? path
  return [
    ...['-kernel', opened((host.acceleration === 'tcg' ? board.vmlinux : undefined) ?? kernel)],
    ...(board.initrd === undefined ? [] : ['-initrd', opened(board.initrd)]),
    ...['-append', [...emulationParameters(board.machine, host), board.commandLine].join(' ')],
  ]
}

/** Of Debian's package `ovmf`. */
export const OVMF = {
  code: '/usr/share/OVMF/OVMF_CODE_4M.fd',
  variables: '/usr/share/OVMF/OVMF_VARS_4M.fd',
} as const

/** SeaBIOS needs no argument. */
function firmwareArguments({ firmware }: Board, { opener, variables }: QemuHost): readonly string[] {
  if (firmware !== 'uefi') return []
  const flash = { if: 'pflash', format: 'raw' }
  const kept = variables === undefined ? undefined : (opener?.disk(variables, true) ?? variables)
  const file =
    kept === undefined ? { snapshot: true, file: OVMF.variables } : { 'auto-read-only': false, file: kept }
  return [
    ...wordsOf({ option: 'drive', properties: { ...flash, unit: 0, readonly: true, file: OVMF.code } }),
    ...wordsOf({ option: 'drive', properties: { ...flash, unit: 1, ...file } }),
  ]
}

/**
 * Kernel parameters for an emulated guest. Mitigations cost time and protect nothing, because no guest instruction runs on
 * a CPU. Expedited RCU shortens each unmount and each removal of a cgroup. Without random addresses, QEMU reuses the code
 * that it translated for an earlier process of the same program (some 3,000 blocks for runc). The kernel's tests of its
 * ciphers and its patches for a single CPU take 0.8 of the 9 s of a guest that runs `true`.
 *
 * Machine `microvm` also needs the rate of the time stamp counter. Its only timer is the local APIC's, which the kernel
 * calibrates by that counter, and that counter by the PIT. On a busy machine the emulated PIT is too uneven, and the guest
 * hangs in `Calibrating delay loop`.
 */
function emulationParameters(machine: Machine, { acceleration, tscKhz }: QemuHost): readonly string[] {
  if (acceleration !== 'tcg') return []
  const clock = machine === 'microvm' && tscKhz !== undefined ? [`tsc_early_khz=${tscKhz}`] : []
  const words = ['mitigations=off', 'rcupdate.rcu_expedited=1', 'norandmaps']
  return [...words, 'cryptomgr.notests', 'noreplace-smp', ...clock]
}

function cpuOption({ cpus, room }: Board): string {
  return room === undefined ? `${cpus}` : `${cpus},maxcpus=${cpus + room.cpus}`
}

/** Each NVDIMM takes a slot, and a place of its size that begins at a multiple of {@link NVDIMM_UNIT_MIB}. */
function memoryOption({ memoryMib, room }: Board, nvdimms: readonly NvdimmDevice[]): string {
  if (room === undefined && nvdimms.length === 0) return `${memoryMib}M`
  const slots = (room?.memorySlots ?? 0) + nvdimms.length
  const units = nvdimms.map(({ sizeBytes }) => Math.ceil(sizeBytes / (NVDIMM_UNIT_MIB * 2 ** 20)))
  const persistentMib = units.reduce((sum, count) => sum + count * NVDIMM_UNIT_MIB, 0)
  return `${memoryMib}M,slots=${slots},maxmem=${memoryMib + (room?.memoryMib ?? 0) + persistentMib}M`
}

const NVDIMM_UNIT_MIB = 128

const MACHINE_OPTIONS: Readonly<Record<Chipset, string>> = {
  q35: 'usb=off',
  pc: 'usb=off',
  microvm: 'acpi=on,rtc=on,pit=on,pic=on,isa-serial=on',
}

function accelerationArguments({ room }: Board, { acceleration }: QemuHost): readonly string[] {
  if (acceleration === 'kvm') return ['-accel', 'kvm', '-cpu', 'host']
  const hasRoom = room !== undefined && room.cpus > 0
  const cpu = hasRoom ? `${EMULATED_CPU},hypervisor=off` : EMULATED_CPU
  return ['-accel', 'tcg,thread=multi', '-cpu', cpu, ...(hasRoom ? LOOKS_LIKE_VMWARE : [])]
}

/**
 * These features make emulation slower. With `erms` the guest copies memory by `rep movsb`, which is emulated byte by byte.
 * `la57` adds a fifth level to each page walk. `smap` ends the translated code at each copy between a program and the
 * kernel, which takes a tenth of the time of a boot.
 */
const EMULATED_CPU = 'max,erms=off,la57=off,smap=off'

/**
 * Linux 6.12.118 counts CPUs to be plugged in only below a hypervisor that it knows (`acpi_is_processor_usable` in
 * arch/x86/kernel/acpi/boot.c), which QEMU's emulation is not. It finds VMware without CPUID, by this serial number and a
 * port that QEMU answers.
 */
const LOOKS_LIKE_VMWARE = ['-smbios', 'type=1,serial=VMware-0']
