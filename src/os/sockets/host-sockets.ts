import type { AgentError } from '../../base/errors.ts'
import type { Clock } from '../clock.ts'
import { checkErrno, fromNodeError, kernelError, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import type { DescriptorStore } from '../supervisor/supervisor.ts'
import { VSOCK_CID } from './allow-list.ts'
import { removeStaleSocket } from './stale-socket.ts'

/** An AF_VSOCK port, or a path in its place. */
export type HostAddress =
  | { readonly kind: 'vsock'; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

/** Stream connections with the host, as descriptors of non-blocking sockets. */
export interface HostSockets {
  /** The caller owns the socket. On vsock the kernel gives up connecting after `timeoutMs`. */
  socket(address: HostAddress, timeoutMs: number): Fd
  /** Throws ECONNRESET or ETIMEDOUT (vsock), ENOENT or ECONNREFUSED (path), or the reason of `signal`. */
  connect(socket: Fd, address: HostAddress, signal: AbortSignal): Promise<void>
  /** Uses the previous agent's socket, or stores a new one under `name`. `close` leaves the connections open. */
  listen(name: string, address: HostAddress, listener: HostListener): Promise<{ close(): void }>
}

export interface HostListener {
  /** The listener owns the descriptor. */
  connection(fd: Fd, peer: HostPeer): void
  /** Accepting failed. Listening continues. */
  error(error: AgentError): void
}

/** An AF_VSOCK address, or the path of the peer's socket (empty when it is unbound). */
export type HostPeer =
  | { readonly kind: 'vsock'; readonly cid: number; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

const BACKLOG = 128

/** The pause after a failed accept(2), mostly for lack of descriptors. The connection stays queued. */
const PAUSE_MS = 100

export function linuxHostSockets(parts: {
  readonly native: Native
  readonly streams: Streams
  readonly clock: Clock
  readonly descriptors: DescriptorStore
}): HostSockets {
  const { native, streams, clock, descriptors } = parts
  return {
    socket: (address, timeoutMs) => {
      const fd = address.kind === 'unix' ? native.unixSocket() : native.vsockSocket(timeoutMs)
      return checkErrno('connect', nameOf(address), fd)
    },
    async connect(socket, address, signal) {
      signal.throwIfAborted()
      const name = nameOf(address)
      checkErrno('connect', name, startConnect(native, socket, address))
      await streams.writable(socket, signal)
      checkErrno('connect', name, native.socketError(socket))
    },
    async listen(name, address, listener) {
      const fd = descriptors.take(name) ?? (await storedListener(parts, name, address))
      const closed = new AbortController()
      void acceptAll({ native, streams, clock, address, fd, listener, signal: closed.signal })
      return {
        close() {
          closed.abort()
          streams.close(fd)
        },
      }
    },
  }
}

function startConnect(native: Native, socket: Fd, address: HostAddress): number {
  return address.kind === 'unix'
    ? native.unixConnect(address.path, socket)
    : native.vsockConnect(VSOCK_CID.host, address.port, socket)
}

/** Stores a new listening socket before it accepts a connection. */
async function storedListener(
  { native, streams, descriptors }: Parameters<typeof linuxHostSockets>[0],
  name: string,
  address: HostAddress,
): Promise<Fd> {
  if (address.kind === 'unix') await removeStaleSocket(address.path)
  const fd = openListener(native, address)
  try {
    await descriptors.store(name, fd)
    return fd
  } catch (error) {
    streams.close(fd)
    throw error
  }
}

function openListener(native: Native, address: HostAddress): Fd {
  const fd =
    address.kind === 'unix'
      ? native.unixListen(address.path, BACKLOG)
      : native.vsockListen(VSOCK_CID.any, address.port, BACKLOG)
  return checkErrno('listen', nameOf(address), fd)
}

interface Accepting {
  readonly native: Native
  readonly streams: Streams
  readonly clock: Clock
  readonly address: HostAddress
  readonly fd: Fd
  readonly listener: HostListener
  readonly signal: AbortSignal
}

async function acceptAll(accepting: Accepting): Promise<void> {
  const { streams, clock, address, fd, listener, signal } = accepting
  while (!signal.aborted) {
    try {
      await streams.readable(fd, signal)
      acceptOne(accepting)
    } catch (error) {
      if (signal.aborted) return
      listener.error(fromNodeError('accept', nameOf(address), error))
      await clock.sleep(PAUSE_MS, signal).catch(() => {})
    }
  }
}

function acceptOne({ native, address, fd, listener }: Accepting): void {
  const accepted = checkErrno('accept', nameOf(address), native.accept(fd))
  let peer: HostPeer
  try {
    peer = peerOf(native, address, accepted)
  } catch (error) {
    native.close(accepted)
    throw error
  }
  listener.connection(accepted, peer)
}

function peerOf(native: Native, address: HostAddress, fd: Fd): HostPeer {
  if (address.kind === 'vsock') {
    return { kind: 'vsock', ...unwrap('name the peer of', nameOf(address), native.vsockPeer(fd)) }
  }
  const path = native.unixPeer(fd)
  if (typeof path === 'string') return { kind: 'unix', path }
  throw kernelError('name the peer of', nameOf(address), 'ENOTCONN')
}

function nameOf(address: HostAddress): string {
  return address.kind === 'unix' ? address.path : `vsock port ${address.port}`
}
