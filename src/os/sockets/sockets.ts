import { createHash } from 'node:crypto'
import { unlink } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { AgentError } from '../../base/errors.ts'
import { checkErrno, errnoName, fromNodeError, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import { withoutStore } from '../supervisor/descriptor-store.ts'
import type { DescriptorStore } from '../supervisor/supervisor.ts'
import { VSOCK_CID } from './allow-list.ts'
import { handleOf, type PipeHandle, SocketHandles, socketOver } from './socket-handles.ts'
import { removeStaleSocket } from './stale-socket.ts'

/** An AF_VSOCK address; see `VSOCK_CID`. */
export interface VsockAddress {
  readonly cid: number
  readonly port: number
}

/** An address to listen at. */
export type ListenAddress =
  | ({ readonly kind: 'vsock' } & VsockAddress)
  /** A path, or `@NAME` in the abstract namespace. */
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }

/** A listening socket of which nothing is accepted yet. */
export interface ListeningSocket {
  readonly address: ListenAddress
  readonly fd: Fd
  /** The port of a TCP or vsock address, as chosen by the kernel for TCP port 0; undefined for a unix socket. */
  readonly port: number | undefined
}

/** A listening socket whose connections this process accepts. */
export interface Listener {
  /** As of {@link ListeningSocket}. */
  readonly port: number | undefined
  /** Stops accepting. Open connections stay open. */
  close(): Promise<void>
}

/** Stream sockets of every family as `net.Socket`s. Both directions end separately (`allowHalfOpen`). */
export interface Sockets {
  /**
   * Opens a listening socket: the one that vminit has of an agent before, or else a new one, which vminit gets before a
   * connection is accepted: from then on it is never released, and connections wait in its queue while no agent runs.
   * The caller hands it to `accept` or `release`. Throws FAILED_PRECONDITION when vminit has a socket of another address.
   */
  open(address: ListenAddress): Promise<ListeningSocket>
  /**
   * Accepts connections, each before any byte of it is read. When `onConnection` destroys the socket at once, the peer has
   * received nothing.
   */
  accept(listening: ListeningSocket, onConnection: (socket: Socket) => void): Promise<Listener>
  /** Closes a socket that another process accepts from, and goes on to. */
  release(listening: ListeningSocket): void
  /** Removes the path of a unix socket that no one listens at any more. */
  removePath(listening: ListeningSocket): Promise<void>
  /** Makes a socket of a connected descriptor, which it then owns. */
  adopt(fd: Fd): Socket
  /** The peer of an AF_VSOCK connection; undefined for every other kind. */
  peerOf(socket: Socket): VsockAddress | undefined
  /** Connects to an AF_VSOCK address. Rejects with the errno, or with the reason of `signal`. */
  connectVsock(address: VsockAddress, signal: AbortSignal): Promise<Socket>
}

/** {@link Sockets} of this machine. */
export function linuxSockets(
  native: Native,
  streams: Streams,
  store: DescriptorStore = withoutStore,
): Sockets {
  const handles = new SocketHandles(native)
  return {
    async open(address) {
      const name = storeName(address)
      const stored = store.take(name)
      if (stored === undefined && store.names().some((other) => other.startsWith(STORE_PREFIX))) {
        const text = `listen ${nameOf(address)}: vminit has the socket of another address, want a new start of vminit`
        throw new AgentError('FAILED_PRECONDITION', text)
      }
      const listening = await open(native, address, stored)
      try {
        if (stored === undefined) await store.store(name, listening.fd)
      } catch (error) {
        release(native, listening)
        await removePath(address)
        throw error
      }
      return listening
    },
    accept: (listening, onConnection) =>
      listening.address.kind === 'vsock'
        ? acceptVsock(handles, listening, onConnection)
        : acceptByNode(listening, onConnection),
    release: (listening) => release(native, listening),
    removePath: (listening) => removePath(listening.address),
    adopt: (fd) => handles.socket(fd),
    peerOf(socket) {
      const fd = handleOf(socket)?.fd
      if (fd === undefined || fd < 0) return undefined
      const peer = native.vsockPeer(fd)
      return typeof peer === 'number' ? undefined : peer
    },
    connectVsock: (address, signal) => connectVsock({ native, streams, handles, address, signal }),
  }
}

/** Node's own default. */
const BACKLOG = 511
/** The kernel's own default. */
const CONNECT_MS = 2000

const STORE_PREFIX = 'service-'

/** The name of the socket in vminit, which only an agent with the same address looks for. */
function storeName(address: ListenAddress): string {
  return STORE_PREFIX + createHash('sha256').update(JSON.stringify(address)).digest('hex').slice(0, 16)
}

/** Makes a listening socket, or takes over the stored one. */
async function open(
  native: Native,
  address: ListenAddress,
  stored: Fd | undefined,
): Promise<ListeningSocket> {
  switch (address.kind) {
    case 'vsock': {
      const listen = () => native.vsockListen(address.cid, address.port, BACKLOG)
      return { address, fd: stored ?? checkErrno('listen', nameOf(address), listen()), port: address.port }
    }
    case 'unix':
      return { address, fd: stored ?? (await listenUnix(native, address.path)), port: undefined }
    case 'tcp':
      return await openTcp(native, address, stored)
  }
}

async function listenUnix(native: Native, path: string): Promise<Fd> {
  if (!isAbstract(path)) await removeStaleSocket(path)
  return checkErrno(
    'listen',
    path,
    forOwnerOnly(() => native.unixListen(path, BACKLOG)),
  )
}

function isAbstract(path: string): boolean {
  return path.startsWith('@')
}

/** Calls `make` with a umask by which a new socket file has mode 0600 at once. */
function forOwnerOnly<T>(make: () => T): T {
  const mask = process.umask(0o177)
  try {
    return make()
  } finally {
    process.umask(mask)
  }
}

/** Node looks the host up, and tells the port. Its server is closed before it accepts anything. */
async function openTcp(
  native: Native,
  address: Extract<ListenAddress, { kind: 'tcp' }>,
  stored: Fd | undefined,
): Promise<ListeningSocket> {
  const name = nameOf(address)
  const server = createServer()
  const opened = Promise.withResolvers<ListeningSocket>()
  // In the event itself: Node accepts no connection before it.
  server.once('listening', () => {
    const bound = server.address()
    const port = bound === null || typeof bound === 'string' ? undefined : bound.port
    const fd = stored ?? native.duplicate(handleOf(server)?.fd ?? -1)
    server.close()
    if (fd < 0) opened.reject(kernelError('duplicate', name, errnoName(-fd)))
    else opened.resolve({ address, fd, port })
  })
  server.on('error', (error) => opened.reject(fromNodeError('listen', name, error)))
  if (stored === undefined) server.listen(address.port, address.host)
  else server.listen({ fd: checkErrno('duplicate', name, native.duplicate(stored)) })
  return await opened.promise
}

function release(native: Native, { address, fd }: ListeningSocket): void {
  checkErrno('close', nameOf(address), native.close(fd))
}

async function removePath(address: ListenAddress): Promise<void> {
  // The path is only a name: what cannot be removed is replaced by the next agent.
  if (address.kind === 'unix' && !isAbstract(address.path)) await unlink(address.path).catch(() => {})
}

async function acceptVsock(
  handles: SocketHandles,
  { address, fd, port }: ListeningSocket,
  onConnection: (socket: Socket) => void,
): Promise<Listener> {
  const handle = handles.server(fd)
  handle.onconnection = (_status, client: PipeHandle | undefined) => {
    // Without a client, accept(2) has failed; libuv goes on listening.
    if (client !== undefined) onConnection(socketOver(client))
  }
  checkErrno('listen', nameOf(address), handle.listen(BACKLOG))
  return { port, close: () => new Promise((resolve) => handle.close(resolve)) }
}

async function acceptByNode(
  { address, fd, port }: ListeningSocket,
  onConnection: (socket: Socket) => void,
): Promise<Listener> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, onConnection)
  const listening = Promise.withResolvers<void>()
  server.once('listening', listening.resolve)
  server.on('error', (error) => listening.reject(fromNodeError('listen', nameOf(address), error)))
  server.listen({ fd })
  await listening.promise
  return {
    port,
    // Stops accepting at once; only its callback waits for the connections to end.
    close: async () => {
      server.close()
      await removePath(address)
    },
  }
}

async function connectVsock(request: {
  readonly native: Native
  readonly streams: Streams
  readonly handles: SocketHandles
  readonly address: VsockAddress
  readonly signal: AbortSignal
}): Promise<Socket> {
  const { native, streams, handles, address, signal } = request
  const name = nameOf({ kind: 'vsock', ...address })
  const fd = checkErrno('connect', name, native.vsockSocket(CONNECT_MS))
  try {
    checkErrno('connect', name, native.vsockConnect(address.cid, address.port, fd))
    await streams.writable(fd, signal)
    checkErrno('connect', name, native.socketError(fd))
    return handles.socket(fd)
  } catch (error) {
    streams.close(fd)
    throw error
  }
}

function nameOf(address: ListenAddress): string {
  switch (address.kind) {
    case 'vsock':
      return `vsock ${address.cid === VSOCK_CID.any ? -1 : address.cid}:${address.port}`
    case 'unix':
      return address.path
    case 'tcp':
      return `${address.host}:${address.port}`
  }
}
