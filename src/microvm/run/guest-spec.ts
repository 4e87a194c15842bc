import type { GuestLink } from '../../host/qemu/vsock/guest-link.ts'
import {
  type Backend,
  chipsetOf,
  type Device,
  type Machine,
  type Room,
  type VmSpec,
} from '../../host/spec/spec.ts'
import { type SpecKey, specKey } from '../../host/spec/spec-key.ts'

export interface GuestParts {
  readonly machine: Machine
  readonly memoryMib: number
  readonly cpus: number
  /** What can be plugged in while the guest runs; nothing by default. */
  readonly room?: Room
  /** Kernel, initrd, and the guest's own root disk unless the initrd is the root. */
  readonly boot: {
    readonly kernel: string
    readonly vmlinux?: string | undefined
    /** Undefined when the kernel can mount the root disk by itself. */
    readonly initrd: string | undefined
    readonly root: RootDisk | undefined
  }
  /** Image of the container's root filesystem. The guest may write to it; its writes are dropped. */
  readonly containerRoot: string | undefined
  /** Undefined when the daemon adds one. */
  readonly link: Pick<GuestLink, 'device' | 'backend' | 'commandLine'> | undefined
  /** Where the guest's console is: `serial` (ttyS0) by default, or `virtio` (hvc0). */
  readonly console?: 'serial' | 'virtio' | undefined
  /** Words for the end of the kernel command line. */
  readonly append: readonly string[]
  readonly extra?: Omit<VmSpec, 'board'>
}

export interface RootDisk {
  readonly path: string
  readonly type: string
  /** The number of the partition that it is in; undefined when it fills the disk. */
  readonly partition?: number | undefined
  /** virtio-blk by default. */
  readonly interface?: RootInterface | undefined
  /** The size of the file, which an NVDIMM needs. */
  readonly sizeBytes?: number
}

export type RootInterface = 'virtio-blk' | 'nvme' | 'nvdimm'

/** PCI slots on the first bus, the same for every guest. */
const SLOTS = { console: 2, root: 3, link: 4, containerRoot: 5 } as const

const KEYS = {
  console: specKey('console'),
  consoleBackend: specKey('console-output'),
  link: specKey('link'),
  linkPort: specKey('link-port'),
  linkBackend: specKey('link-backend'),
  root: specKey('root'),
  rootBackend: specKey('root-file'),
  containerRoot: specKey('container-root'),
  containerRootBackend: specKey('container-root-file'),
}

export function guestSpec(parts: GuestParts): VmSpec {
  const { boot, containerRoot, link } = parts
  const devices: Record<SpecKey, Device> = { ...parts.extra?.devices }
  const backends: Record<SpecKey, Backend> = { ...parts.extra?.backends }
  const add = (key: SpecKey, device: Device, backendKey: SpecKey, backend: Backend) => {
    devices[key] = device
    backends[backendKey] = backend
  }
  const console: Device =
    parts.console === 'virtio'
      ? { kind: 'virtio-console', slot: SLOTS.console, backend: KEYS.consoleBackend }
      : { kind: 'serial', backend: KEYS.consoleBackend }
  add(KEYS.console, console, KEYS.consoleBackend, { kind: 'console' })
  if (link !== undefined) {
    const device = link.device(SLOTS.link, KEYS.linkBackend)
    const needsPort = device.kind === 'vsock' && chipsetOf(parts.machine) === 'q35'
    if (needsPort) devices[KEYS.linkPort] = { kind: 'root-port', slot: SLOTS.link }
    const placed = needsPort ? { ...device, slot: 0, port: KEYS.linkPort } : device
    add(KEYS.link, placed, KEYS.linkBackend, link.backend)
  }
  if (boot.root !== undefined) add(KEYS.root, rootDevice(boot.root), KEYS.rootBackend, rootBackend(boot.root))
  if (containerRoot !== undefined) {
    add(
      KEYS.containerRoot,
      { kind: 'disk', slot: SLOTS.containerRoot, serial: 'container', backend: KEYS.containerRootBackend },
      KEYS.containerRootBackend,
      { kind: 'file', path: containerRoot, access: 'scratch' },
    )
  }
  const { kernel, vmlinux, initrd } = boot
  const { machine, memoryMib, cpus, room } = parts
  return {
    ...parts.extra,
    board: { machine, memoryMib, cpus, room, kernel, vmlinux, initrd, commandLine: commandLine(parts) },
    devices,
    backends,
  }
}

function rootDevice({ interface: kind = 'virtio-blk', sizeBytes = 0 }: RootDisk): Device {
  const backend = KEYS.rootBackend
  if (kind === 'nvdimm') return { kind, sizeBytes, backend }
  return { kind: 'disk', interface: kind, slot: SLOTS.root, serial: 'root', backend }
}

function rootBackend({ path, type, interface: kind }: RootDisk): Backend {
  return { kind: 'file', path, access: type === 'erofs' || kind === 'nvdimm' ? 'read-only' : 'scratch' }
}

/**
 * The source by which the agent finds the container's root disk: its PCI path, or its device name on machine `microvm`,
 * which has no PCI and names this disk last.
 */
export function containerRootSource(parts: Pick<GuestParts, 'machine' | 'boot'>): string {
  if (parts.machine !== 'microvm') return SLOTS.containerRoot.toString(16).padStart(2, '0')
  return parts.boot.root === undefined ? '/dev/vda' : '/dev/vdb'
}

function commandLine(parts: GuestParts): string {
  const { boot, link, append, memoryMib } = parts
  const root = boot.root === undefined ? [] : rootWords(boot.root)
  const device = parts.console === 'virtio' ? 'hvc0' : 'ttyS0'
  // A panic ends QEMU (-no-reboot) after its text, instead of hanging.
  const general = [`console=${device}`, 'quiet', 'panic=-1', ...memoryWords(memoryMib)]
  return [...general, ...root, ...(link?.commandLine ?? []), ...append].join(' ')
}

/**
 * The words for a root that is mounted read-only, from persistent memory without a copy in the page cache. Persistent memory
 * lies above 4 GiB, for which Linux would set 64 MiB of bounce buffers aside; no device of the guest needs them.
 */
function rootWords(root: RootDisk): readonly string[] {
  const flags = root.interface === 'nvdimm' ? ['rootflags=dax', 'swiotlb=noforce'] : []
  return [`root=${nameOf(root)}`, `rootfstype=${root.type}`, ...flags, 'ro']
}

/** The root's device in the guest, always the first of its kind: nvme0n1, nvme0n1p1, vda, vda1, pmem0p1. */
function nameOf({ interface: kind = 'virtio-blk', partition }: RootDisk): string {
  const disk = { nvme: '/dev/nvme0n1', nvdimm: '/dev/pmem0', 'virtio-blk': '/dev/vda' }[kind]
  if (partition === undefined) return disk
  return `${disk}${/\d$/.test(disk) ? 'p' : ''}${partition}`
}

/** Below this, a guest does without optional features. */
const SMALL_MIB = 256

/**
 * Keeps vm.min_free_kbytes near the kernel's first value (mm/page_alloc.c), which it would raise to about 100 MiB for
 * transparent huge pages. Also saves the 9 MiB that Linux 6.1 takes for the files of its tracing.
 */
function memoryWords(memoryMib: number): readonly string[] {
  const isSmall = memoryMib < SMALL_MIB
  const keptKib = Math.max(isSmall ? 2048 : 4096, Math.floor(Math.sqrt(memoryMib * 1024 * 16)))
  const kept = `sysctl.vm.min_free_kbytes=${keptKib}`
  return isSmall ? [kept, 'initcall_blacklist=tracer_init_tracefs'] : [kept]
}
