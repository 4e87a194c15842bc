import type { Socket } from 'node:net'
import { crc32 } from '../../base/crc32.ts'
import { AgentError } from '../../base/errors.ts'
import { checkErrno, errnoName, fromNodeError, kernelError } from '../errors.ts'
import { unlink } from '../files/node-files.ts'
import type { Native } from '../native.ts'
import type { Fd } from '../streams/streams.ts'
import type { DescriptorStore } from '../supervisor/supervisor.ts'
import { VSOCK_CID } from './allow-list.ts'
import { DataSocket, READ_BYTES } from './data-socket.ts'
import type { SocketHandles } from './socket-handles.ts'
import { removeStaleSocket } from './stale-socket.ts'

export interface VsockAddress {
  readonly cid: number
  readonly port: number
}

export type ListenAddress =
  | ({ readonly kind: 'vsock' } & VsockAddress)
  /** A path, or `@NAME` in the abstract namespace. */
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }

/** A listening socket that has accepted nothing yet. */
export interface ListeningSocket {
  readonly address: ListenAddress
  readonly fd: Fd
  /** Of a TCP or vsock address, chosen by the kernel for TCP port 0; undefined for a unix socket. */
  readonly port: number | undefined
}

/** The service's socket, and connected ones. */
export interface Sockets {
  /**
   * Opens the listening socket that vminit keeps, or a new one, which vminit gets before a connection is accepted:
   * connections wait in its queue while no agent runs. The caller passes it to `release`. Throws FAILED_PRECONDITION
   * when vminit has a socket of another address.
   */
  open(address: ListenAddress): Promise<ListeningSocket>
  /** Closes a socket from which another process accepts. */
  release(listening: ListeningSocket): void
  /** Removes the path of a unix socket without a listener. */
  removePath(listening: ListeningSocket): Promise<void>
  /** Makes a socket that owns a connected descriptor. */
  dataSocket(fd: Fd): DataSocket
  /** The same of any family; its directions end separately. Loads node:net. */
  netSocket(fd: Fd): Promise<Socket>
}

export function linuxSockets(native: Native, store: DescriptorStore): Sockets {
  let handles: SocketHandles | undefined
  let memory: Buffer | undefined
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
    dataSocket: (fd) => {
      memory ??= Buffer.allocUnsafeSlow(READ_BYTES)
      return new DataSocket(native, fd, memory)
    },
    async netSocket(fd) {
      const loaded = await import('./socket-handles.ts')
      handles ??= new loaded.SocketHandles(native)
      return handles.socket(fd)
    },
  }
}

/** Node's default. */
const BACKLOG = 511

const STORE_PREFIX = 'service-'

/** Only an agent with the same address looks for this name in vminit. */
function storeName(address: ListenAddress): string {
  return STORE_PREFIX + crc32(Buffer.from(JSON.stringify(address))).toString(16)
}

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

/** Node resolves the host and reports the port. Its server is closed before it accepts a connection. */
async function openTcp(
  native: Native,
  address: Extract<ListenAddress, { kind: 'tcp' }>,
  stored: Fd | undefined,
): Promise<ListeningSocket> {
  const name = nameOf(address)
  const [{ createServer }, { handleOf }] = await Promise.all([
    import('node:net'),
    import('./socket-handles.ts'),
  ])
  const server = createServer()
  const opened = Promise.withResolvers<ListeningSocket>()
  // Inside the event, because Node accepts no connection before it.
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
  // The next agent replaces a path that cannot be removed.
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
