import type { Backend, Device, Machine, Room, VmSpec } from './spec.ts'
import { type SpecKey, specKey } from './spec-key.ts'
import type { GuestLink } from './vsock/guest-link.ts'

/** What a guest that runs one container is made from. */
export interface GuestParts {
  readonly machine: Machine
  readonly memoryMib: number
  readonly cpus: number
  /** What can be plugged in while it runs; nothing where it is left out. */
  readonly room?: Room
  /** Kernel, initrd, and the guest's own root disk unless the initrd is the root. */
  readonly boot: {
    readonly kernel: string
    /** Not needed by a kernel that can mount the root disk by itself. */
    readonly initrd: string | undefined
    readonly root: RootDisk | undefined
  }
  /** Image of the container's root filesystem; the guest may write, and nothing of it is kept. */
  readonly containerRoot: string | undefined
  readonly link: Pick<GuestLink, 'device' | 'backend' | 'commandLine'>
  /** Added at the end of the kernel command line. */
  readonly append: readonly string[]
  /** Devices and backends besides, whose PCI slots begin at 6, and the namespace of their tap interfaces. */
  readonly extra?: Omit<VmSpec, 'board'>
}

/** The guest's own root. */
export interface RootDisk {
  readonly path: string
  /** The file system in it. */
  readonly type: string
  /** virtio-blk where it is left out. */
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
 * How the agent finds the container's root disk: by its PCI path, or on machine `microvm`, which has no PCI, by its
 * name, which is the last one given out.
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

/** The root disk as the guest names it: always the first of its kind. */
function nameOf(root: RootDisk): string {
  return root.interface === 'nvme' ? '/dev/nvme0n1' : '/dev/vda'
}

/**
 * The kernel's own vm.min_free_kbytes (mm/page_alloc.c), which it raises to about 100 MiB for transparent huge pages:
 * a good part of a small guest.
 */
function keepFree(memoryMib: number): string {
  return `sysctl.vm.min_free_kbytes=${Math.max(4096, Math.floor(Math.sqrt(memoryMib * 1024 * 16)))}`
}
