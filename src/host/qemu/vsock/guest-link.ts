import type { Duplex } from 'node:stream'
import type { Address } from '../../../client/connection/address.ts'
import type { Backend, Device } from '../../spec/spec.ts'
import type { SpecKey } from '../../spec/spec-key.ts'

/** A way from this host to a guest's agent: a device of the machine, and how to connect through it. */
export interface GuestLink {
  /** The device to put into the machine, in PCI slot `slot`, with the backend of key `backend`. */
  device(slot: number, backend: SpecKey): Device
  readonly backend: Backend
  /** Words for the kernel command line. */
  readonly commandLine: readonly string[]
  /** Where the agent listens, for this process and others of this host. */
  readonly address: Address
  /**
   * Connects to the agent. Rejects with UNAVAILABLE until the agent listens; a `tcp` connection may instead be made and
   * closed again until then.
   */
  connect(signal: AbortSignal): Promise<Duplex>
  /** Ends everything that this link started. */
  close(): Promise<void>
}

/** A link before {@link GuestLink.connect} is made of its address. */
export type OwnLink = Omit<GuestLink, 'connect'>

/** The agent's port, on vsock and on TCP. */
export const AGENT_PORT = 1024
