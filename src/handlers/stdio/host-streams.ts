import type { HostAddress } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import type { StreamName } from './port-connections.ts'

/** Where the host's ports are: on vsock, or unix sockets of a folder that stand for them, for agents without a VM. */
export type StdioDial = { readonly kind: 'vsock' } | { readonly kind: 'unix'; readonly folder: string }

export interface HostStreamsConfig {
  readonly dial: StdioDial
  /** How long a dial may take. */
  readonly dialTimeoutMs: number
  /** The host connects to this port of ours, and its connections are claimed; 0: we dial. */
  readonly listenerPort: number
  /** Lets processes of this guest hand over connections too, for tests. */
  readonly allowLoopback: boolean
}

/** Gets connections with the host that streams of processes go through. */
export interface HostStreams {
  /** The connection of port `port`, for `stream`. Throws INTERNAL naming both when there is none. */
  connect(port: number, stream: StreamName, signal: AbortSignal): Promise<Fd>
  /** To be called once, before requests are answered: opens the listener, if there shall be one. */
  listen(): Promise<void>
}

/** The address of the host's port `port`. */
export function hostPort(dial: StdioDial, port: number): HostAddress {
  return dial.kind === 'vsock'
    ? { kind: 'vsock', port }
    : { kind: 'unix', path: `${dial.folder}/port_${port}` }
}
