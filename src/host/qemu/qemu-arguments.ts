import { AgentError } from '../../base/errors.ts'
import { checkSpec } from '../spec/check-spec.ts'
import { devicesInOrder } from '../spec/device-order.ts'
import {
  type Backend,
  type Board,
  type Chipset,
  chipsetOf,
  type Device,
  type DiskDevice,
  type FileBackend,
  type Machine,
  type NicDevice,
  type NvdimmDevice,
  type RootPortDevice,
  type ShareDevice,
  type UserSubnet,
  type VmSpec,
} from '../spec/spec.ts'
import { qemuId, type SpecKey } from '../spec/spec-key.ts'
import type { Acceleration } from './host.ts'

/** The facts of this host that QEMU's arguments depend on besides the specification. */
export interface QemuHost {
  readonly acceleration: Acceleration
  /** QEMU's descriptor of the connected socket that it uses for QMP. */
  readonly qmpFd: number
  /** Rate of this machine's time stamp counter in kHz; undefined when unknown. */
  readonly tscKhz?: number | undefined
}

/** QEMU's arguments for `spec`, without the program's name. Throws INVALID_ARGUMENT as {@link checkSpec} does. */
export function qemuArguments(spec: VmSpec, host: QemuHost): readonly string[] {
  checkSpec(spec)
  const shared = Object.values(spec.backends).some((backend) => backend.kind === 'vhost-user')
  return [
    // Only what is written here: no configuration file, no default devices, no screen, no reboot loop.
    ...['-no-user-config', '-nodefaults', '-display', 'none', '-no-reboot'],
    ...boardArguments(spec.board, host, { shared, nvdimms: nvdimmsOf(spec) }),
    ...['-chardev', `socket,id=qmp,fd=${host.qmpFd}`, '-mon', 'qmp,mode=control'],
    ...devicesInOrder(spec).flatMap(([key, device]) => deviceArguments(spec, key, device)),
  ]
}

interface BoardNeeds {
  /** Whether a vhost-user daemon reads and writes the guest's memory itself. */
  readonly shared: boolean
  readonly nvdimms: readonly NvdimmDevice[]
}

function nvdimmsOf({ devices }: VmSpec): readonly NvdimmDevice[] {
  return Object.values(devices).flatMap((device) => (device.kind === 'nvdimm' ? [device] : []))
}

function boardArguments(board: Board, host: QemuHost, needs: BoardNeeds): readonly string[] {
  const { shared, nvdimms } = needs
  const memory = shared ? ',memory-backend=memory' : ''
  const nvdimm = board.room === undefined && nvdimms.length === 0 ? '' : ',nvdimm=on'
  return [
    ...['-machine', `${board.machine},${MACHINE_OPTIONS[chipsetOf(board.machine)]}${memory}${nvdimm}`],
    ...accelerationArguments(board, host),
    ...['-smp', cpuOption(board), '-m', memoryOption(board, nvdimms)],
    ...(shared ? ['-object', `memory-backend-memfd,id=memory,size=${board.memoryMib}M,share=on`] : []),
    ...['-kernel', (host.acceleration === 'tcg' ? board.vmlinux : undefined) ?? board.kernel],
    ...(board.initrd === undefined ? [] : ['-initrd', board.initrd]),
    ...['-append', [...emulationParameters(board.machine, host), board.commandLine].join(' ')],
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

function deviceArguments(spec: VmSpec, key: SpecKey, device: Device): readonly string[] {
  const id = qemuId(key)
  const { machine } = spec.board
  switch (device.kind) {
    case 'disk':
      return [
        ...['-drive', driveOption(device.backend, fileBackend(spec, device))],
        ...['-device', `${diskModel(machine, device)},id=${id},${diskProperties(device)}`],
      ]
    case 'nvdimm':
      return nvdimmArguments(id, device, fileBackend(spec, device).path)
    case 'nic':
      return [
        ...['-netdev', netdevOption(device, spec.backends[device.backend])],
        ...['-device', `${virtio(machine, 'virtio-net', device.slot)},id=${id},${nicProperties(device)}`],
      ]
    case 'vsock':
      return vsockArguments(spec, id, device)
    case 'serial':
      return [
        // `signal=off`: the runner handles Ctrl-C.
        ...['-chardev', `stdio,id=${qemuId(device.backend)},signal=off`],
        ...['-serial', `chardev:${qemuId(device.backend)}`],
      ]
    case 'virtio-console':
      return [
        ...['-chardev', `stdio,id=${qemuId(device.backend)},signal=off`],
        ...['-device', `${virtio(machine, 'virtio-serial', device.slot)},id=${id}`],
        ...['-device', `virtconsole,bus=${id}.0,chardev=${qemuId(device.backend)}`],
      ]
    case 'fw-cfg':
      return ['-fw_cfg', `name=${escaped(device.name)},file=${escaped(contentPath(spec, device.backend))}`]
    case 'share':
      return shareArguments(spec, id, device)
    case 'root-port':
      return ['-device', rootPort(id, device)]
    case 'pci-bridge':
      return ['-device', `pci-bridge,id=${id},addr=${hex(device.slot)},chassis_nr=${device.slot}`]
    default:
      return device satisfies never
  }
}

/** `unarmed` tells the guest that the memory is read-only. */
function nvdimmArguments(id: string, device: NvdimmDevice, path: string): readonly string[] {
  const file = `mem-path=${escaped(path)},size=${device.sizeBytes},share=on,readonly=on`
  return [
    ...['-object', `memory-backend-file,id=${qemuId(device.backend)},${file}`],
    ...['-device', `nvdimm,id=${id},memdev=${qemuId(device.backend)},unarmed=on`],
  ]
}

function shareArguments(spec: VmSpec, id: string, device: ShareDevice): readonly string[] {
  const { machine } = spec.board
  const [backend, key] = [spec.backends[device.backend], qemuId(device.backend)]
  if (backend?.kind === 'folder') {
    return [
      ...['-fsdev', `local,id=${key},path=${escaped(backend.path)},security_model=passthrough`],
      ...[
        '-device',
        `${virtio(machine, 'virtio-9p', device.slot)},id=${id},fsdev=${key},mount_tag=${device.tag}`,
      ],
    ]
  }
  return [
    ...vhostUserChardev(spec, device.backend),
    ...[
      '-device',
      `${virtio(machine, 'vhost-user-fs', device.slot)},id=${id},chardev=${key},tag=${device.tag}`,
    ],
  ]
}

function rootPort(id: string, { slot, func = 0 }: RootPortDevice): string {
  const place = `addr=${hex(slot)}.${func},multifunction=on`
  const number = slot * FUNCTIONS + func
  // No I/O space, because a few ports would use up all of it and modern virtio needs none. One spare bus number, for a
  // bridge that is plugged in.
  const room = 'io-reserve=0,bus-reserve=1'
  return `pcie-root-port,id=${id},bus=pcie.0,${place},chassis=${number},slot=${number},${room}`
}

const FUNCTIONS = 8

function vsockArguments(spec: VmSpec, id: string, device: Device & { kind: 'vsock' }): readonly string[] {
  const backend = spec.backends[device.backend]
  const { machine } = spec.board
  if (backend?.kind === 'vhost-user') {
    const chardev = qemuId(device.backend)
    return [
      ...vhostUserChardev(spec, device.backend),
      ...['-device', `${virtio(machine, 'vhost-user-vsock', device.slot)},id=${id},chardev=${chardev}`],
    ]
  }
  return ['-device', `${virtio(machine, 'vhost-vsock', device.slot)},id=${id},guest-cid=${device.cid}`]
}

function vhostUserChardev(spec: VmSpec, key: SpecKey): readonly string[] {
  const backend = spec.backends[key]
  if (backend?.kind !== 'vhost-user') {
    throw new AgentError('INTERNAL', `backend ${key}: not a vhost-user daemon, want checkSpec to run first`)
  }
  return ['-chardev', `socket,id=${qemuId(key)},path=${escaped(backend.socket)}`]
}

/** `virtio-blk-pci,addr=…` on a PCI machine, `virtio-blk-device` on virtio-mmio. */
function virtio(machine: Machine, model: string, slot: number): string {
  return machine === 'microvm' ? `${model}-device` : `${model}-pci,addr=${hex(slot)}`
}

function diskModel(machine: Machine, { interface: kind, slot }: DiskDevice): string {
  return kind === 'nvme' ? `nvme,addr=${hex(slot)}` : virtio(machine, 'virtio-blk', slot)
}

function diskProperties(device: DiskDevice): string {
  return `drive=${qemuId(device.backend)},serial=${device.serial}`
}

function nicProperties(device: NicDevice): string {
  return `netdev=${qemuId(device.backend)},mac=${device.mac}`
}

function driveOption(key: SpecKey, backend: FileBackend): string {
  const access = { 'read-only': ',readonly=on', 'read-write': '', scratch: ',snapshot=on' }[backend.access]
  // The image is dropped when this host crashes, so QEMU need not wait for its disk.
  const cache = backend.access === 'scratch' ? ',cache=unsafe' : ''
  return `if=none,id=${qemuId(key)},format=raw,file=${escaped(backend.path)}${access}${cache}`
}

function netdevOption(device: NicDevice, backend: Backend | undefined): string {
  const id = qemuId(device.backend)
  if (backend?.kind === 'tap') {
    return `tap,id=${id},ifname=${escaped(backend.interfaceName)},script=no,downscript=no`
  }
  const { forwards = [], subnets = [] } = backend?.kind === 'user-network' ? backend : {}
  const rules = forwards.map((rule) => `,hostfwd=tcp:127.0.0.1:${rule.hostPort}-:${rule.guestPort}`)
  return `user,id=${id}${subnetOptions(subnets)}${rules.join('')}`
}

/** Names both families, because QEMU gives its own addresses to one that is not named. */
function subnetOptions(subnets: readonly UserSubnet[]): string {
  if (subnets.length === 0) return ''
  const v4 = subnets.find(({ family }) => family === 'ipv4')
  const v6 = subnets.find(({ family }) => family === 'ipv6')
  const options = [
    `ipv4=${v4 ? 'on' : 'off'}`,
    // The DHCP server's first address has to be in the subnet too.
    ...(v4 ? [`net=${v4.network}/${v4.prefixLength}`, `host=${v4.host}`, `dns=${v4.nameServer}`] : []),
    ...(v4 ? [`dhcpstart=${v4.guest}`] : []),
    `ipv6=${v6 ? 'on' : 'off'}`,
    ...(v6 ? [`ipv6-prefix=${v6.network}`, `ipv6-prefixlen=${v6.prefixLength}`] : []),
    ...(v6 ? [`ipv6-host=${v6.host}`, `ipv6-dns=${v6.nameServer}`] : []),
  ]
  return `,${options.join(',')}`
}

function fileBackend(spec: VmSpec, device: DiskDevice | NvdimmDevice): FileBackend {
  const backend = spec.backends[device.backend]
  if (backend?.kind === 'file') return backend
  throw new AgentError('INTERNAL', `backend ${device.backend}: not a file, want checkSpec to run first`)
}

function contentPath(spec: VmSpec, key: SpecKey): string {
  const backend = spec.backends[key]
  if (backend?.kind === 'content') return backend.path
  throw new AgentError('INTERNAL', `backend ${key}: has no content, want checkSpec to run first`)
}

/** Doubles the commas of a value, which would end it in QEMU's option lists. */
function escaped(value: string): string {
  return value.replaceAll(',', ',,')
}

function hex(slot: number): string {
  return `0x${slot.toString(16)}`
}
