import { createServer, type Server, type Socket } from 'node:net'
import { checkErrno, fromNodeError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Streams } from '../streams/streams.ts'
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

/** A listening socket. */
export interface Listener {
  /** The port of a TCP or vsock address, as chosen by the kernel for TCP port 0; undefined for a unix socket. */
  readonly port: number | undefined
  /** Stops accepting. Open connections stay open. */
  close(): Promise<void>
}

/** Stream sockets of every family as `net.Socket`s. Both directions end separately (`allowHalfOpen`). */
export interface Sockets {
  /**
   * Listens. `onConnection` gets each connection before any byte of it is read. When it destroys the socket at once, the
   * peer has received nothing.
   */
  listen(address: ListenAddress, onConnection: (socket: Socket) => void): Promise<Listener>
  /** The peer of an AF_VSOCK connection; undefined for every other kind. */
  peerOf(socket: Socket): VsockAddress | undefined
  /** Connects to an AF_VSOCK address. Rejects with the errno, or with the reason of `signal`. */
  connectVsock(address: VsockAddress, signal: AbortSignal): Promise<Socket>
}

/** {@link Sockets} of this machine. */
export function linuxSockets(native: Native, streams: Streams): Sockets {
  const handles = new SocketHandles(native)
  return {
    async listen(address, onConnection) {
      switch (address.kind) {
        case 'vsock':
          return listenVsock({ native, handles, address, onConnection })
        case 'unix':
          return await listenUnix(address.path, onConnection)
        case 'tcp':
          return await listenTcp(address, onConnection)
      }
    },
    peerOf(socket) {
      const fd = handleOf(socket)?.fd
      if (fd === undefined || fd < 0) return undefined
      const peer = native.vsockPeer(fd)
      return typeof peer === 'number' ? undefined : peer
    },
    connectVsock: (address, signal) => connectVsock({ native, streams, handles, address, signal }),
  }
}

const BACKLOG = 128
/** The kernel's own default. */
const CONNECT_MS = 2000

function listenVsock(request: {
  readonly native: Native
  readonly handles: SocketHandles
  readonly address: VsockAddress
  readonly onConnection: (socket: Socket) => void
}): Listener {
  const { native, handles, address, onConnection } = request
  const name = nameOf(address)
  const handle = handles.server(
    checkErrno('listen', name, native.vsockListen(address.cid, address.port, BACKLOG)),
  )
  handle.onconnection = (_status, client: PipeHandle | undefined) => {
    // Without a client, accept(2) has failed; libuv goes on listening.
    if (client !== undefined) onConnection(socketOver(client))
  }
  checkErrno('listen', name, handle.listen(BACKLOG))
  return { port: address.port, close: () => new Promise((resolve) => handle.close(resolve)) }
}

async function listenUnix(path: string, onConnection: (socket: Socket) => void): Promise<Listener> {
  const abstract = path.startsWith('@')
  if (!abstract) await removeStaleSocket(path)
  const server = serverFor(onConnection)
  await listening(server, path, () =>
    forOwnerOnly(() => server.listen(abstract ? `\0${path.slice(1)}` : path)),
  )
  return { port: undefined, close: () => closed(server) }
}

/** Calls `make` with a umask by which a new socket file has mode 0600 at once: Node binds before `listen` returns. */
function forOwnerOnly(make: () => void): void {
  const mask = process.umask(0o177)
  try {
    make()
  } finally {
    process.umask(mask)
  }
}

async function listenTcp(
  { host, port }: { readonly host: string; readonly port: number },
  onConnection: (socket: Socket) => void,
): Promise<Listener> {
  const server = serverFor(onConnection)
  await listening(server, `${host}:${port}`, () => server.listen(port, host))
  const address = server.address()
  return {
    port: address === null || typeof address === 'string' ? undefined : address.port,
    close: () => closed(server),
  }
}

function serverFor(onConnection: (socket: Socket) => void): Server {
  return createServer({ allowHalfOpen: true, noDelay: true }, onConnection)
}

async function listening(server: Server, name: string, listen: () => void): Promise<void> {
  const listened = Promise.withResolvers<void>()
  server.once('listening', listened.resolve)
  server.on('error', (error) => listened.reject(fromNodeError('listen', name, error)))
  listen()
  await listened.promise
}

/** Stops accepting, which `close` does at once; only its callback waits for the connections to end. */
async function closed(server: Server): Promise<void> {
  server.close()
}

async function connectVsock(request: {
  readonly native: Native
  readonly streams: Streams
  readonly handles: SocketHandles
  readonly address: VsockAddress
  readonly signal: AbortSignal
}): Promise<Socket> {
  const { native, streams, handles, address, signal } = request
  const name = nameOf(address)
  const fd = checkErrno('connect', name, native.vsockConnect(address.cid, address.port, CONNECT_MS))
  try {
    await streams.writable(fd, signal)
    checkErrno('connect', name, native.socketError(fd))
    return handles.socket(fd)
  } catch (error) {
    streams.close(fd)
    throw error
  }
}

function nameOf({ cid, port }: VsockAddress): string {
  return `vsock ${cid === VSOCK_CID.any ? -1 : cid}:${port}`
}
