import type { Backend, Device } from '../../spec/spec.ts'
import type { SpecKey } from '../../spec/spec-key.ts'

/** The ways to reach a guest, best first. */
export const VSOCK_KINDS = ['vhost', 'vhost-user', 'tcp'] as const

/**
 * `vhost`: the kernel's /dev/vhost-vsock. `vhost-user`: the daemon vhost-device-vsock. `tcp`: not vsock, but
 * QEMU's user network and a port on this host's loopback.
 */
export type VsockKind = (typeof VSOCK_KINDS)[number]

/** A way from this host to a guest's agent: a device of the machine. */
export interface GuestLink {
  /** The device to put into the machine, in PCI slot `slot`, with the backend of key `backend`. */
  device(slot: number, backend: SpecKey): Device
  readonly backend: Backend
  /** Words for the kernel command line. */
  readonly commandLine: readonly string[]
}

/** The agent's port, on vsock and on TCP. */
export const AGENT_PORT = 1024
