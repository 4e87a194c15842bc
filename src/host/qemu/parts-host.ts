import { AgentError } from '../../base/errors.ts'
import type { SavedMemory } from '../spec/spec.ts'
import type { SpecKey } from '../spec/spec-key.ts'

/**
 * Names what QEMU cannot open by itself: it has neither the rights of the daemon nor the host's network. Each name is for
 * one part.
 */
export interface Opener {
  /** The name of a disk's file; `isWritten`: the guest writes to it. */
  disk(path: string, isWritten: boolean): string
  /** The name of a file that QEMU reads once. */
  read(path: string): string
  /** The name of a file that QEMU maps for reading. */
  map(path: string): string
  /** The descriptor of a tap that is made for it. */
  tap(name: string): string
  /** The descriptor of one of several pairs of queues of a tap, which the first one makes. */
  queue(name: string, index: number): string
  /** The descriptor of a connection to a unix socket. */
  connection(socket: string): string
  /** The descriptor of a device. */
  device(path: string): string
}

/** Names what a machine begins with. */
export interface MemoryOpener {
  /** The name of a file that is the guest's memory. */
  memory(saved: SavedMemory): string
}

/** The facts of this host that the parts of a machine depend on besides the specification. */
export interface PartsHost {
  /** Sockets of the daemons that serve backends (passt, the vsock daemon, virtiofsd), by the backend's key. */
  readonly sockets?: ReadonlyMap<SpecKey, string> | undefined
  /** Sockets of the servers of disks that QEMU does not open itself, by the backend's key. */
  readonly servedDisks?: ReadonlyMap<SpecKey, string> | undefined
  /** The context id of a guest whose specification leaves the choice to the daemon. */
  readonly cid?: number | undefined
  /** What a vmgenid device shows the guest: a UUID; QEMU chooses one by default. */
  readonly generationId?: string | undefined
  /** By default QEMU opens all itself. */
  readonly opener?: Opener | undefined
  /** The files on top of those of backends, by the backend's key: the lowest first, the one that is written to last. */
  readonly layers?: ReadonlyMap<SpecKey, readonly LayerFile[]> | undefined
  /** The files of secrets, by their UUIDs. */
  readonly secrets?: ReadonlyMap<string, string> | undefined
  /** Of a machine that runs: secrets in base64, by their UUIDs. What is there already needs none to be removed. */
  readonly secretValues?: ReadonlyMap<string, string> | undefined
  /** Paths of those files that are block devices. */
  readonly blockDevices?: ReadonlySet<string> | undefined
}

/** A qcow2 file with what was written since a snapshot, and the name of its block node. */
export interface LayerFile {
  readonly node: string
  readonly path: string
}

export function socketOf({ sockets }: PartsHost, key: SpecKey): string {
  const path = sockets?.get(key)
  if (path === undefined) throw new AgentError('INTERNAL', `backend ${key}: no socket of its daemon`)
  return path
}
