import type { IpFamily } from '../../base/ip-address.ts'
import type { SpecKey } from './spec-key.ts'

/**
 * The complete description of a virtual machine. It separates what the guest sees (`board`, `devices`) from how this
 * host provides it (`backends`), so replacing a backend changes nothing for the guest. Plain data, which can be written
 * to a file and compared.
 */
export interface VmSpec {
  readonly board: Board
  /** Frontends: the devices in the guest, each naming its backend. */
  readonly devices: Readonly<Record<SpecKey, Device>>
  /** Backends: each is used by exactly one device. */
  readonly backends: Readonly<Record<SpecKey, Backend>>
  /** {@link REBOOT_LIMIT} by default. */
  readonly rebootLimit?: RebootLimit | undefined
  readonly limits?: Limits | undefined
  /** What the guest's memory begins with; empty memory by default. */
  readonly memory?: SavedMemory | undefined
}

/** The memory of a saved guest, a template of several: QEMU alone copies what its own guest writes. */
export interface SavedMemory {
  /** The socket of the template's keeper; or a file, where QEMU opens all itself. */
  readonly path: string
}

/** What all processes of the machine together may take of the host; 0 is this host's default. */
export interface Limits {
  readonly memoryMib: number
  /** Thousandths of a CPU. */
  readonly cpuMilli: number
  readonly tasks: number
}

export const NO_LIMITS: Limits = { memoryMib: 0, cpuMilli: 0, tasks: 0 }

/** A guest that reboots more often by itself is stopped. */
export interface RebootLimit {
  readonly count: number
  readonly seconds: number
}

export const REBOOT_LIMIT: RebootLimit = { count: 3, seconds: 60 }

/**
 * `q35` and `pc` have a PCI bus; `microvm` has virtio-mmio devices only, found by their order. Only a name with a version
 * is the same machine in each QEMU.
 */
export const MACHINES = ['pc-q35-7.2', 'pc-i440fx-7.2', 'q35', 'pc', 'microvm'] as const

export type Machine = (typeof MACHINES)[number]

/** What the machine has, whatever its version. */
export type Chipset = 'q35' | 'pc' | 'microvm'

export function chipsetOf(machine: Machine): Chipset {
  return ({ 'pc-q35-7.2': 'q35', 'pc-i440fx-7.2': 'pc', q35: 'q35', pc: 'pc', microvm: 'microvm' } as const)[
    machine
  ]
}

/** The machine without its devices, and what it boots. */
export interface Board {
  readonly machine: Machine
  readonly memoryMib: number
  readonly cpus: number
  /** What can be plugged in while the machine runs; nothing by default. Machine `microvm` has no room. */
  readonly room?: Room | undefined
  /** Path of a bzImage on this host. Without one the firmware boots the disk of the lowest slot. */
  readonly kernel?: string | undefined
  /** "bios" by default; only without a kernel. */
  readonly firmware?: 'bios' | 'uefi' | undefined
  /** The same kernel as an ELF file with a PVH entry, which an emulated machine starts a second sooner. */
  readonly vmlinux?: string | undefined
  readonly initrd: string | undefined
  readonly commandLine: string
  /** Whether there is a vmgenid device. */
  readonly generationId?: boolean | undefined
}

/** The CPUs and memory that can be added to a running machine. */
export interface Room {
  readonly cpus: number
  readonly memoryMib: number
  /** In how many pieces the memory may be added. */
  readonly memorySlots: number
}

/**
 * A device as the guest sees it. `slot` is its place on the first PCI bus, 2 to 30, or 0 in the root port `port`. Machine
 * `microvm` has no PCI: there the slots only order the devices.
 */
export type Device =
  | DiskDevice
  | NvdimmDevice
  | NicDevice
  | VsockDevice
  | SerialDevice
  | VirtioConsoleDevice
  | FirmwareDevice
  | RootPortDevice
  | BridgeDevice
  | ShareDevice

/**
 * A disk. virtio-blk ones are named vda, vdb …, on machine `microvm` in their order in the spec; NVMe ones, which need
 * PCI, are namespace 1 of nvme0, nvme1 ….
 */
export interface DiskDevice {
  readonly kind: 'disk'
  /** virtio-blk by default. Debian's kernels have NVMe built in, so they mount such a root without an initrd. */
  readonly interface?: 'virtio-blk' | 'nvme'
  readonly slot: number
  readonly port?: SpecKey | undefined
  /** Up to 20 characters, shown in /sys/block/…/serial. */
  readonly serial: string
  /** Snapshots leave it out. */
  readonly noSnapshot?: boolean
  readonly backend: SpecKey
}

/**
 * A file as persistent memory, which the guest can map without a copy: /dev/pmem0, pmem1 … in their order in the spec.
 * Machine `microvm` has none.
 */
export interface NvdimmDevice {
  readonly kind: 'nvdimm'
  /** Orders them, where there are several. */
  readonly slot?: number | undefined
  /** The size of the file. */
  readonly sizeBytes: number
  readonly backend: SpecKey
}

export interface NicDevice {
  readonly kind: 'nic'
  readonly slot: number
  readonly port?: SpecKey | undefined
  readonly mac: string
  /** Pairs of queues at a tap; 1 by default. */
  readonly queues?: number | undefined
  /** Whether the network behind the card can be replaced while the machine runs, which takes a hub in QEMU. */
  readonly replaceable?: boolean | undefined
  /** What the guest may not send to its tap; none by default. */
  readonly filters?: readonly NetworkFilter[] | undefined
  /** The guest's addresses, of which the filters of IP and ARP let it send. */
  readonly addresses?: readonly string[] | undefined
  readonly backend: SpecKey
}

export const NETWORK_FILTERS = ['no-mac-spoofing', 'no-ip-spoofing', 'no-arp-spoofing'] as const

/** `agent-only`: over IPv6 the guest's agent answers who calls it, and the guest sends nothing else. */
export type NetworkFilter = (typeof NETWORK_FILTERS)[number] | 'agent-only'

export interface VsockDevice {
  readonly kind: 'vsock'
  readonly slot: number
  readonly port?: SpecKey | undefined
  /** The guest's context id, 3 or above; 0 lets the daemon choose one. */
  readonly cid: number
  readonly backend: SpecKey
}

export interface SerialDevice {
  readonly kind: 'serial'
  readonly backend: SpecKey
}

export interface VirtioConsoleDevice {
  readonly kind: 'virtio-console'
  readonly slot: number
  readonly port?: SpecKey | undefined
  readonly backend: SpecKey
}

export interface FirmwareDevice {
  readonly kind: 'fw-cfg'
  /** Such as `opt/com.example/settings`; names that QEMU does not define begin with `opt/`. */
  readonly name: string
  readonly backend: SpecKey
}

/** A PCIe port of machine `q35` into which a device can be plugged while the guest runs. */
export interface RootPortDevice {
  readonly kind: 'root-port'
  readonly slot: number
  /** 0 by default. A slot holds up to eight ports, functions 0 to 7, and function 0 must be one of them. */
  readonly func?: number
}

/** A conventional PCI bridge, with slots 1 to 31 for devices that are plugged in while the guest runs. */
export interface BridgeDevice {
  readonly kind: 'pci-bridge'
  readonly slot: number
}

/** A folder of the host that the guest mounts by its tag: by virtio-fs from a daemon, by 9p from QEMU. */
export interface ShareDevice {
  readonly kind: 'share'
  readonly slot: number
  readonly port?: SpecKey | undefined
  /** 1 to 36 bytes; shims use `kataShared`. */
  readonly tag: string
  readonly backend: SpecKey
}

/** How this host provides a device. */
export type Backend =
  | FileBackend
  | UserNetworkBackend
  | PasstBackend
  | TapBackend
  | VhostVsockBackend
  | VsockDaemonBackend
  | VhostUserBackend
  | VirtiofsdBackend
  | ConsoleBackend
  | ContentBackend
  | FolderBackend

/** A disk that a server of the network has. No specification has one, only machines of documents. */
export interface NetworkDisk extends Pick<FileBackend, 'cache' | 'limits'> {
  readonly kind: 'network-disk'
  /** Of https, which is only read, iscsi or nbds. */
  readonly url: string
  readonly access: 'read-only' | 'read-write'
  /** By HTTP Basic or CHAP: `secret` is the id of the password. */
  readonly login?: { readonly username: string; readonly secret: string } | undefined
  /** Of nbds: a file of certificates, a name of the server, and the id of the secret with the client's certificate and key. */
  readonly tls?: { readonly ca: string; readonly name?: string; readonly secret?: string } | undefined
}

/** The id of the secret by which the server knows this host. */
export function secretOfDisk({ login, tls }: NetworkDisk): string | undefined {
  return login?.secret ?? tls?.secret
}

const ISCSI_PORT = 3260
const NBD_PORT = 10809

/** A network disk's address in the words that it has in common with all others of the same disk. */
export function plainDiskUrl(url: string): string {
  if (url.startsWith('https:')) return new URL(url).href
  if (url.startsWith('nbds:')) {
    const { host, port, name } = nbdServerOf(url)
    return `nbds://${host.toLowerCase()}:${port}/${name}`
  }
  // Portals and names of targets are the same in upper and lower case (RFC 3722).
  const { hostname, pathname, port } = new URL(url.toLowerCase())
  const [, target = '', unit] = pathname.split('/')
  return `iscsi://${hostname}:${Number(port || ISCSI_PORT)}/${target}/${Number(unit)}`
}

/** Where a server of NBD has a disk. */
export function nbdServerOf(url: string): {
  readonly host: string
  readonly port: number
  readonly name: string
} {
  const { hostname, pathname, port } = new URL(url)
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || NBD_PORT), name: pathname.slice(1) }
}

/** A raw file or block device below a disk or persistent memory. */
export interface FileBackend {
  readonly kind: 'file'
  readonly path: string
  /** `scratch`: the guest may write, and its writes are dropped with the machine. */
  readonly access: 'read-only' | 'read-write' | 'scratch'
  /** Only of machines that were made of documents, as all below: raw by default. */
  readonly format?: 'raw' | 'qcow2' | undefined
  readonly cache?: 'none' | 'writeback' | 'writethrough' | 'directsync' | 'unsafe' | undefined
  readonly io?: 'threads' | 'native' | 'io_uring' | undefined
  /** What the guest may do at most in a second, reading and writing together. */
  readonly limits?: { readonly iopsTotal?: number; readonly bytesPerSecond?: number } | undefined
  /** Id of the secret that opens a LUKS image. */
  readonly encryption?: { readonly secret: string } | undefined
  /** Id of the host that has the file; of a disk of a machine with LM_FULL_LEASES. */
  readonly host?: string | undefined
}

/** QEMU's own network stack; each of `forwards` connects a port of this host's loopback to one of the guest. */
export interface UserNetworkBackend {
  readonly kind: 'user-network'
  readonly forwards: readonly { readonly hostPort: number; readonly guestPort: number }[]
  /** Replace QEMU's own choice (10.0.2.0/24 and fec0::/64); at most one of each family. */
  readonly subnets?: readonly UserSubnet[]
}

export interface UserSubnet {
  readonly family: IpFamily
  readonly network: string
  readonly prefixLength: number
  /** The host's address in the guest's network; its ports are those of this machine's loopback. */
  readonly host: string
  readonly guest: string
  readonly nameServer: string
}

/** passt, which the daemon starts. */
export interface PasstBackend {
  readonly kind: 'passt'
}

/** An interface that QEMU makes, and that goes with it. */
export interface TapBackend {
  readonly kind: 'tap'
  readonly interfaceName: string
  /** The bridge that the daemon makes it a port of. */
  readonly bridge?: string | undefined
}

export interface VhostVsockBackend {
  readonly kind: 'vhost-vsock'
}

/** vhost-device-vsock, which the daemon starts. */
export interface VsockDaemonBackend {
  readonly kind: 'vsock-daemon'
}

/** A daemon that runs already. */
export interface VhostUserBackend {
  readonly kind: 'vhost-user'
  readonly socket: string
}

/** A folder of this host that virtiofsd, which the daemon starts, serves to the guest. */
export interface VirtiofsdBackend {
  readonly kind: 'virtiofsd'
  readonly path: string
}

/** A folder of this host that QEMU itself serves to the guest over 9p. */
export interface FolderBackend {
  readonly kind: 'folder'
  readonly path: string
  /** Only of machines that were made of documents. */
  readonly readOnly?: boolean | undefined
}

/** QEMU's stdout, where the runner collects the output of a serial port or a virtio console. */
export interface ConsoleBackend {
  readonly kind: 'console'
}

/** A file whose bytes are the content of a firmware item. */
export interface ContentBackend {
  readonly kind: 'content'
  readonly path: string
}
