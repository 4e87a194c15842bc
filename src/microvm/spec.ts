import type { IpFamily } from '../base/ip-address.ts'
import type { SpecKey } from './spec-key.ts'

/**
 * The one description a virtual machine is made from. What the guest sees (`board`, `devices`) is kept apart from
 * how this host provides it (`backends`): a backend can be replaced and the guest notices nothing. Plain data, so it
 * can be written to a file and compared.
 */
export interface VmSpec {
  readonly board: Board
  /** Frontends: the devices in the guest, each naming its backend. */
  readonly devices: Readonly<Record<SpecKey, Device>>
  /** Backends: each is used by exactly one device. */
  readonly backends: Readonly<Record<SpecKey, Backend>>
  /** Path of the network namespace that QEMU runs in, where its tap interfaces are; left out: that of the runner. */
  readonly networkNamespace?: string
}

/** `q35` and `pc` have a PCI bus; `microvm` has virtio-mmio devices only, found by their order. */
export type Machine = 'q35' | 'pc' | 'microvm'

/** The machine without its devices, and what it boots. */
export interface Board {
  readonly machine: Machine
  readonly memoryMib: number
  readonly cpus: number
  /** What can be plugged in while it runs, besides; nothing where it is left out. Machine `microvm` has no room. */
  readonly room?: Room | undefined
  /** Path of a bzImage on this host. */
  readonly kernel: string
  readonly initrd: string | undefined
  readonly commandLine: string
}

/** Room for more of what a machine has. */
export interface Room {
  readonly cpus: number
  readonly memoryMib: number
  /** How many pieces of memory it may come in. */
  readonly memorySlots: number
}

/** A device as the guest sees it. `slot` is its place on the first PCI bus (1–31); machine `microvm` ignores it. */
export type Device =
  | DiskDevice
  | NicDevice
  | VsockDevice
  | SerialDevice
  | FirmwareDevice
  | RootPortDevice
  | ShareDevice

/**
 * A disk. virtio-blk ones are named vda, vdb …, on machine `microvm` in their order in the spec; NVMe ones, which need
 * PCI, are namespace 1 of nvme0, nvme1 ….
 */
export interface DiskDevice {
  readonly kind: 'disk'
  /** virtio-blk where it is left out. Debian's kernels have NVMe built in, so they mount such a root without an initrd. */
  readonly interface?: 'virtio-blk' | 'nvme'
  readonly slot: number
  /** Up to 20 characters, shown in /sys/block/…/serial. */
  readonly serial: string
  readonly backend: SpecKey
}

/** A virtio-net card. */
export interface NicDevice {
  readonly kind: 'nic'
  readonly slot: number
  readonly mac: string
  readonly backend: SpecKey
}

/** A virtio-vsock device. */
export interface VsockDevice {
  readonly kind: 'vsock'
  readonly slot: number
  /** The guest's context id, 3 or above. */
  readonly cid: number
  readonly backend: SpecKey
}

/** A 16550 serial port; the first in the spec is ttyS0. */
export interface SerialDevice {
  readonly kind: 'serial'
  readonly backend: SpecKey
}

/** An item of the firmware configuration device, found below /sys/firmware/qemu_fw_cfg/by_name. */
export interface FirmwareDevice {
  readonly kind: 'fw-cfg'
  /** Such as `opt/com.example/settings`; names of one's own begin with `opt/`. */
  readonly name: string
  readonly backend: SpecKey
}

/** A PCIe port of machine `q35` into which a device can be plugged while the guest runs. */
export interface RootPortDevice {
  readonly kind: 'root-port'
  readonly slot: number
  /** 0 where it is left out. A slot has room for eight ports, functions 0 to 7; function 0 has to be one of them. */
  readonly func?: number
}

/** A folder of the host that the guest mounts by its tag: by virtio-fs from a daemon, by 9p from QEMU. */
export interface ShareDevice {
  readonly kind: 'share'
  readonly slot: number
  /** 1 to 36 bytes; shims use `kataShared`. */
  readonly tag: string
  readonly backend: SpecKey
}

/** How this host provides a device. */
export type Backend =
  | FileBackend
  | UserNetworkBackend
  | TapBackend
  | VhostVsockBackend
  | VhostUserBackend
  | ConsoleBackend
  | ContentBackend
  | FolderBackend

/** A raw file or block device below a disk. */
export interface FileBackend {
  readonly kind: 'file'
  readonly path: string
  /** `scratch`: the guest may write, and what it wrote is thrown away with the machine. */
  readonly access: 'read-only' | 'read-write' | 'scratch'
}

/** QEMU's own network stack; `forwards` lead from a port on this host's loopback into the guest. */
export interface UserNetworkBackend {
  readonly kind: 'user-network'
  readonly forwards: readonly { readonly hostPort: number; readonly guestPort: number }[]
  /** In place of QEMU's own choice (10.0.2.0/24 and fec0::/64): at most one of each family. */
  readonly subnets?: readonly UserSubnet[]
}

/** Addresses that QEMU's network stack plays. */
export interface UserSubnet {
  readonly family: IpFamily
  readonly network: string
  readonly prefixLength: number
  /** The host as the guest sees it; its ports are those of this machine's loopback. */
  readonly host: string
  /** The guest's own address. */
  readonly guest: string
  readonly nameServer: string
}

/** An existing tap interface of this host. */
export interface TapBackend {
  readonly kind: 'tap'
  readonly interfaceName: string
}

/** The kernel's /dev/vhost-vsock. */
export interface VhostVsockBackend {
  readonly kind: 'vhost-vsock'
}

/** A vhost-user daemon that listens at `socket`; the guest's memory is shared with it. */
export interface VhostUserBackend {
  readonly kind: 'vhost-user'
  readonly socket: string
}

/** A folder of this host that QEMU itself serves to the guest, over 9p. */
export interface FolderBackend {
  readonly kind: 'folder'
  readonly path: string
}

/** The serial port's output comes out of QEMU's stdout, where the runner collects it. */
export interface ConsoleBackend {
  readonly kind: 'console'
}

/** What a firmware item holds: a file's bytes. */
export interface ContentBackend {
  readonly kind: 'content'
  readonly path: string
}
