import type { Holder } from '../../instance/holder/holder.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'

/*
 * The bulk of a move: disks and memory, from one QEMU to another. A QEMU within walls has neither the files nor the network of
 * its host: the daemons make the connections and hand them over by QMP.
 *
 * A target is a QEMU that was started with `-incoming defer`. Its daemon calls `openIncoming`, waits for `arrived`, calls
 * `endDisks`, and has the guest run. The source's daemon calls `openOutgoing`, and then `copyDisks`, `sendMemory`, `endDisks` and
 * `endMemory`. On either side `undoBulk` takes back what any step has left, also for another daemon.
 */

/** A machine's QEMU. The context of an instance's steps has all but `qmp` and `signal`. */
export interface BulkQemu {
  readonly qmp: QmpClient
  /** The instance's folder. */
  readonly folder: string
  readonly isWalled: boolean
  readonly holder: Pick<Holder, 'relay'> | undefined
  /** Ends the waits for QEMU. */
  readonly signal: AbortSignal
}

/** The paths of what this host shows others: PEM files. */
export interface HostIdentity {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

/**
 * The other host, and what it is shown. The certificate of host `peer` has `CN=peer` as its whole subject, and the host's id is one of its DNS
 * names; QEMU refuses any other.
 */
export interface BulkTls {
  readonly identity: HostIdentity
  readonly peer: string
}

/** Where the target listens: TCP has TLS, and a unix socket has none. */
export type BulkEndpoint = { readonly host: string; readonly port: number } | { readonly path: string }

/** A disk that moves, in the words of one side. */
export interface BulkDisk {
  /** The same on both sides; unique. */
  readonly key: string
  /** QEMU's name of the topmost node, which the guest's disk uses. */
  readonly node: string
  /** Of the guest's disk; both sides have the same. */
  readonly sizeBytes: number
  /** `top`: the target has already what is below the node. */
  readonly sync: 'full' | 'top'
}

/** Names of all that the bulk makes in QEMU, by which it is found again. */
export const NAMES = {
  credentials: 'move-tls',
  peer: 'move-peer',
  listener: 'move-listener',
  memory: 'move-memory',
  /** The job, the node and the export of the disk with this index, and the filter above its own node. */
  disk: (index: number) => `move-disk-${index}`,
  filter: (index: number) => `move-filter-${index}`,
} as const

export const IS_DISK = /^move-disk-\d+$/

export interface DiskProgress {
  /** Both grow with what the guest writes. */
  readonly copiedBytes: number
  readonly totalBytes: number
}

export interface MemoryProgress {
  readonly transferredBytes: number
  readonly remainingBytes: number
  readonly totalBytes: number
  /** How fast the guest changes its memory. */
  readonly dirtyBytesPerSecond: number
  readonly bytesPerSecond: number
  /** How often all of the memory that had changed was sent. */
  readonly rounds: number
  /** By how much QEMU slows the guest. */
  readonly throttledPercent: number
}

export type BulkProgress = { readonly disks: DiskProgress } | { readonly memory: MemoryProgress }
