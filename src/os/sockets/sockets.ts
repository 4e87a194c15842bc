import { createHash } from 'node:crypto'
import { createServer, type Server, type Socket } from 'node:net'
import { AgentError } from '../../base/errors.ts'
import { checkErrno, fromNodeError } from '../errors.ts'
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
   * Listens, with the socket that vminit has of an agent before, or else with a new one, which vminit gets before a
   * connection is accepted: from then on it is never released, and connections wait in its queue while no agent runs.
   * `onConnection` gets each connection before any byte of it is read. When it destroys the socket at once, the peer has
   * received nothing. Throws FAILED_PRECONDITION when vminit has a socket of another address.
   */
  listen(address: ListenAddress, onConnection: (socket: Socket) => void): Promise<Listener>
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
    async listen(address, onConnection) {
      const name = storeName(address)
      const stored = store.take(name)
      if (stored === undefined && store.names().some((other) => other.startsWith(STORE_PREFIX))) {
        const text = `listen ${nameOf(address)}: vminit has the socket of another address, want a new start of vminit`
        throw new AgentError('FAILED_PRECONDITION', text)
      }
      const opened = (fd: Fd) => {
        if (stored === undefined) store.store(name, fd)
      }
      switch (address.kind) {
        case 'vsock':
          return listenVsock({ native, handles, address, stored, opened, onConnection })
        case 'unix':
          return await listenUnix({ path: address.path, stored, opened, onConnection })
        case 'tcp':
          return await listenTcp({ address, stored, opened, onConnection })
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

const STORE_PREFIX = 'service-'

/** The name of the socket in vminit, which only an agent with the same address looks for. */
function storeName(address: ListenAddress): string {
  return STORE_PREFIX + createHash('sha256').update(JSON.stringify(address)).digest('hex').slice(0, 16)
}

/** How to come by a listening socket. */
interface Listening {
  /** The socket of an agent before; undefined for a new one. */
  readonly stored: Fd | undefined
  /** Called with the listening socket before a connection is accepted. */
  readonly opened: (fd: Fd) => void
  readonly onConnection: (socket: Socket) => void
}

function listenVsock(
  request: Listening & {
    readonly native: Native
    readonly handles: SocketHandles
    readonly address: VsockAddress
  },
): Listener {
  const { native, handles, address, stored, opened, onConnection } = request
  const name = nameOf({ kind: 'vsock', ...address })
  const fd = stored ?? checkErrno('listen', name, native.vsockListen(address.cid, address.port, BACKLOG))
  opened(fd)
  const handle = handles.server(fd)
  handle.onconnection = (_status, client: PipeHandle | undefined) => {
    // Without a client, accept(2) has failed; libuv goes on listening.
    if (client !== undefined) onConnection(socketOver(client))
  }
  checkErrno('listen', name, handle.listen(BACKLOG))
  return { port: address.port, close: () => new Promise((resolve) => handle.close(resolve)) }
}

async function listenUnix(request: Listening & { readonly path: string }): Promise<Listener> {
  const { path, stored } = request
  const abstract = path.startsWith('@')
  if (!abstract && stored === undefined) await removeStaleSocket(path)
  const server = await listening(request, path, (made) =>
    forOwnerOnly(() => made.listen(abstract ? `\0${path.slice(1)}` : path)),
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
  request: Listening & { readonly address: { readonly host: string; readonly port: number } },
): Promise<Listener> {
  const { host, port } = request.address
  const server = await listening(request, `${host}:${port}`, (made) => made.listen(port, host))
  const address = server.address()
  return {
    port: address === null || typeof address === 'string' ? undefined : address.port,
    close: () => closed(server),
  }
}

/** A server at the stored socket, or at a new one that `listen` makes. */
async function listening(
  { stored, opened, onConnection }: Listening,
  name: string,
  listen: (server: Server) => void,
): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, onConnection)
  const listened = Promise.withResolvers<void>()
  // In the event itself: Node accepts no connection before it.
  server.once('listening', () => {
    try {
      opened(handleOf(server)?.fd ?? -1)
      listened.resolve()
    } catch (error) {
      server.close()
      listened.reject(error)
    }
  })
  server.on('error', (error) => listened.reject(fromNodeError('listen', name, error)))
  if (stored === undefined) listen(server)
  else server.listen({ fd: stored })
  await listened.promise
  return server
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
  const name = nameOf({ kind: 'vsock', ...address })
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
