import type { AgentError } from '../../base/errors.ts'
import type { Clock } from '../clock.ts'
import { checkErrno, fromNodeError, kernelError, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import type { DescriptorStore } from '../supervisor/supervisor.ts'
import { VSOCK_CID } from './allow-list.ts'
import { removeStaleSocket } from './stale-socket.ts'

/** An end of a connection between guest and host: an AF_VSOCK port, or a path in place of one. */
export type HostAddress =
  | { readonly kind: 'vsock'; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

/** Stream connections with the host, as descriptors of non-blocking sockets that bytes are relayed through. */
export interface HostSockets {
  /** A socket to connect to such an address. On vsock the kernel gives up after `timeoutMs`. The caller owns it. */
  socket(address: HostAddress, timeoutMs: number): Fd
  /**
   * Connects `socket` to an address of the host (CID 2); one that has begun to connect goes on. Throws ECONNRESET or
   * ETIMEDOUT (vsock), ENOENT or ECONNREFUSED (path) when nothing listens there, and the reason of `signal`.
   */
  connect(socket: Fd, address: HostAddress, signal: AbortSignal): Promise<void>
  /**
   * Accepts connections of the host until `close`, which leaves them open, at the socket of the previous agent or a new
   * one, which is stored under `name`.
   */
  listen(name: string, address: HostAddress, listener: HostListener): Promise<{ close(): void }>
}

/** Receives the host's connections. */
export interface HostListener {
  /** Owns the descriptor from then on. */
  connection(fd: Fd, peer: HostPeer): void
  /** Accepting failed; listening goes on. */
  error(error: AgentError): void
}

/** The peer of a connection: an AF_VSOCK address, or the path that its socket is bound to (empty when unbound). */
export type HostPeer =
  | { readonly kind: 'vsock'; readonly cid: number; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

const BACKLOG = 128

/** The pause after a failed accept(2), which mostly lacked descriptors; the connection stays in the queue. */
const PAUSE_MS = 100

/** {@link HostSockets} over AF_VSOCK, or over unix sockets in its place. */
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

/** A new listening socket, which is stored before a connection is accepted. */
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
  /** Fires when accepting ends. */
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
