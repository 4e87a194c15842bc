import { unlink } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { crc32 } from 'node:zlib'
import { AgentError } from '../../base/errors.ts'
import { checkErrno, errnoName, fromNodeError, kernelError } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from '../streams/streams.ts'
import type { DescriptorStore } from '../supervisor/supervisor.ts'
import { VSOCK_CID } from './allow-list.ts'
import { handleOf, SocketHandles } from './socket-handles.ts'
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

/** The service's socket, and stream sockets of every family as `net.Socket`s, whose directions end separately. */
export interface Sockets {
  /**
   * Opens a listening socket: the one of the previous agent that vminit keeps, or else a new one, which vminit gets
   * before a connection is accepted: from then on it is never released, and connections wait in its queue while no
   * agent runs. The caller hands it to `release`. Throws FAILED_PRECONDITION when vminit has a socket of another
   * address.
   */
  open(address: ListenAddress): Promise<ListeningSocket>
  /** Closes a socket that another process accepts from, and goes on to. */
  release(listening: ListeningSocket): void
  /** Removes the path of a unix socket that no one listens at any more. */
  removePath(listening: ListeningSocket): Promise<void>
  /** Makes a socket of a connected descriptor, which it then owns. */
  adopt(fd: Fd): Socket
}

/** {@link Sockets} of this machine. */
export function linuxSockets(native: Native, store: DescriptorStore): Sockets {
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
    release: (listening) => release(native, listening),
    removePath: (listening) => removePath(listening.address),
    adopt: (fd) => handles.socket(fd),
  }
}

/** Node's own default. */
const BACKLOG = 511

const STORE_PREFIX = 'service-'

/** The name of the socket in vminit, which only an agent with the same address looks for. */
function storeName(address: ListenAddress): string {
  return STORE_PREFIX + crc32(JSON.stringify(address)).toString(16)
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
