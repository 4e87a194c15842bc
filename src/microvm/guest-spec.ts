import type { Backend, Device, Machine, Room, VmSpec } from './spec.ts'
import { type SpecKey, specKey } from './spec.ts'
import type { GuestLink } from './vsock/guest-link.ts'

/** The parts of a guest that runs one container. */
export interface GuestParts {
  readonly machine: Machine
  readonly memoryMib: number
  readonly cpus: number
  /** What can be plugged in while the guest runs; nothing by default. */
  readonly room?: Room
  /** Kernel, initrd, and the guest's own root disk unless the initrd is the root. */
  readonly boot: {
    readonly kernel: string
    /** Undefined when the kernel can mount the root disk by itself. */
    readonly initrd: string | undefined
    readonly root: RootDisk | undefined
  }
  /** Image of the container's root filesystem. The guest may write to it; its writes are dropped. */
  readonly containerRoot: string | undefined
  readonly link: Pick<GuestLink, 'device' | 'backend' | 'commandLine'>
  /** Words for the end of the kernel command line. */
  readonly append: readonly string[]
  /** Further devices, in PCI slots from 6 on, their backends, and the namespace of their tap interfaces. */
  readonly extra?: Omit<VmSpec, 'board'>
}

/** The guest's own root. */
export interface RootDisk {
  readonly path: string
  /** The file system in it. */
  readonly type: string
  /** virtio-blk by default. */
  readonly interface?: 'virtio-blk' | 'nvme'
}

/** PCI slots on the first bus, the same for every guest. */
const SLOTS = { root: 3, link: 4, containerRoot: 5 } as const

const KEYS = {
  console: specKey('console'),
  consoleBackend: specKey('console-output'),
  link: specKey('link'),
  linkBackend: specKey('link-backend'),
  root: specKey('root'),
  rootBackend: specKey('root-file'),
  containerRoot: specKey('container-root'),
  containerRootBackend: specKey('container-root-file'),
}

/** The specification of a guest that runs one container. */
export function guestSpec(parts: GuestParts): VmSpec {
  const { boot, containerRoot, link } = parts
  const devices: Record<SpecKey, Device> = { ...parts.extra?.devices }
  const backends: Record<SpecKey, Backend> = { ...parts.extra?.backends }
  const add = (key: SpecKey, device: Device, backendKey: SpecKey, backend: Backend) => {
    devices[key] = device
    backends[backendKey] = backend
  }
  add(KEYS.console, { kind: 'serial', backend: KEYS.consoleBackend }, KEYS.consoleBackend, {
    kind: 'console',
  })
  add(KEYS.link, link.device(SLOTS.link, KEYS.linkBackend), KEYS.linkBackend, link.backend)
  if (boot.root !== undefined) {
    const { interface: kind = 'virtio-blk' } = boot.root
    add(
      KEYS.root,
      { kind: 'disk', interface: kind, slot: SLOTS.root, serial: 'root', backend: KEYS.rootBackend },
      KEYS.rootBackend,
      { kind: 'file', path: boot.root.path, access: boot.root.type === 'erofs' ? 'read-only' : 'scratch' },
    )
  }
  if (containerRoot !== undefined) {
    add(
      KEYS.containerRoot,
      { kind: 'disk', slot: SLOTS.containerRoot, serial: 'container', backend: KEYS.containerRootBackend },
      KEYS.containerRootBackend,
      { kind: 'file', path: containerRoot, access: 'scratch' },
    )
  }
  const { kernel, initrd } = boot
  const { machine, memoryMib, cpus, room } = parts
  return {
    ...parts.extra,
    board: { machine, memoryMib, cpus, room, kernel, initrd, commandLine: commandLine(parts) },
    devices,
    backends,
  }
}

/**
 * The source by which the agent finds the container's root disk: its PCI path, or its device name on machine `microvm`,
 * which has no PCI and names this disk last.
 */
export function containerRootSource(parts: Pick<GuestParts, 'machine' | 'boot'>): string {
  if (parts.machine !== 'microvm') return SLOTS.containerRoot.toString(16).padStart(2, '0')
  return parts.boot.root === undefined ? '/dev/vda' : '/dev/vdb'
}

function commandLine({ boot, link, append, memoryMib }: GuestParts): string {
  const root =
    boot.root === undefined ? [] : [`root=${nameOf(boot.root)}`, `rootfstype=${boot.root.type}`, 'ro']
  // A panic ends QEMU (-no-reboot) after its text, instead of hanging.
  const general = ['console=ttyS0', 'quiet', 'panic=-1', keepFree(memoryMib)]
  return [...general, ...root, ...link.commandLine, ...append].join(' ')
}

/** The root disk's device in the guest: always the first of its kind. */
function nameOf(root: RootDisk): string {
  return root.interface === 'nvme' ? '/dev/nvme0n1' : '/dev/vda'
}

/**
 * Sets vm.min_free_kbytes to the value that the kernel computes first (mm/page_alloc.c). The kernel would then raise it
 * to about 100 MiB for transparent huge pages, a large part of a small guest.
 */
function keepFree(memoryMib: number): string {
  return `sysctl.vm.min_free_kbytes=${Math.max(4096, Math.floor(Math.sqrt(memoryMib * 1024 * 16)))}`
}
