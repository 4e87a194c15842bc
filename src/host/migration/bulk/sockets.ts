import { chmod, rm } from 'node:fs/promises'
import { type AddressInfo, createServer, type NetConnectOpts, type Server, Socket } from 'node:net'
import { dirname } from 'node:path'
import { abortable } from '../../../base/abort.ts'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { buildAddon } from '../../../build/native.ts'
import { checkErrno, unwrap } from '../../../os/errors.ts'
import { loadNative, type Native } from '../../../os/native.ts'
import { handleOf } from '../../../os/sockets/socket-handles.ts'
import type { Holder } from '../../instance/holder/holder.ts'
import type { BulkEndpoint, BulkQemu } from './bulk.ts'

/** The kernel asks a silent peer after this time, and then each second, ten times. */
const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 5000 } as const

/** How long a connection may take to be made. */
const CONNECT_MS = 10_000

export async function loadAddon(): Promise<Native> {
  return loadNative(dirname(await buildAddon()))
}

/** QEMU's name for a descriptor, and what sends it. */
interface Given {
  readonly fdname: string
  readonly native: Native
}

const BACKLOG = 16

/** A connection that QEMU has, too. */
export interface Wire {
  /** Ends it for both: QEMU may be waiting for its peer, and answers nothing then. */
  cut(): void
  /** Closes it here. */
  close(): void
}

/**
 * Connects to an endpoint and gives QEMU the connection by the name `fdname`; with `isRelayed`, for NBD with TLS, one that its holder
 * passes on. Rejects with UNAVAILABLE.
 */
export async function giveConnection(
  qemu: BulkQemu,
  endpoint: BulkEndpoint,
  { fdname, native, isRelayed = false }: Given & { readonly isRelayed?: boolean },
): Promise<Wire> {
  const { signal } = qemu
  const socket = new Socket()
  // What the target sends first is for QEMU.
  socket.pause()
  const connected = Promise.withResolvers<void>()
  socket.once('connect', connected.resolve)
  socket.on('error', (error) => {
    const text = `${nameOf(endpoint)}: ${errnoOf(error) ?? error.message}`
    connected.reject(new AgentError('UNAVAILABLE', text, { cause: error }))
  })
  const place: NetConnectOpts = 'path' in endpoint ? endpoint : { ...endpoint, ...KEEP_ALIVE, noDelay: true }
  socket.connect(place)
  const late = AbortSignal.timeout(CONNECT_MS)
  try {
    await abortable(connected.promise, AbortSignal.any([signal, late])).catch((error) => {
      if (signal.aborted || !late.aborted) throw error
      throw new AgentError('UNAVAILABLE', `${nameOf(endpoint)}: no connection in ${CONNECT_MS} ms`)
    })
    if (isRelayed && qemu.holder) await giveRelayed(qemu, qemu.holder, socket, { fdname, native })
    else await give(qemu, socket, { fdname, native })
  } catch (error) {
    socket.destroy()
    throw error
  }
  return {
    cut: () => {
      const fd = descriptorOf(socket)
      if (fd >= 0) native.shutdown(fd)
    },
    close: () => socket.destroy(),
  }
}

/** Where a target listens. */
export type ListenPlace = { readonly host: string } | { readonly path: string }

/** A port that is kept for QEMU. Whoever connects before QEMU has it is turned away. */
export interface KeptPort {
  readonly endpoint: { readonly host: string; readonly port: number }
  readonly server: Server
  /** Also after QEMU has it, which goes on listening. */
  close(): void
}

/** Listens on a free port of the address. */
export async function keepPort(host: string): Promise<KeptPort> {
  // QEMU accepts before anyone knows the port.
  const server = createServer((socket) => socket.destroy())
  const endpoint = await listen(server, { host })
  server.unref()
  if ('path' in endpoint) throw new AgentError('INTERNAL', `${endpoint.path}: no port`)
  return { endpoint, server, close: () => server.close() }
}

/** Gives QEMU a listening socket by the name `fdname`. A unix socket's file is the caller's to remove. */
export async function giveListener(
  qemu: BulkQemu,
  place: ListenPlace | KeptPort,
  { fdname, native }: Given,
): Promise<BulkEndpoint> {
  if ('path' in place) {
    await rm(place.path, { force: true })
    const fd = checkErrno('listen', place.path, native.unixListen(place.path, BACKLOG))
    try {
      await qemu.qmp.pass({ execute: 'getfd', arguments: { fdname } }, { native, fd }, qemu.signal)
    } finally {
      native.close(fd)
    }
    return place
  }
  const kept = 'server' in place ? place : await keepPort(place.host)
  try {
    await give(qemu, kept.server, { fdname, native })
    return kept.endpoint
  } finally {
    kept.close()
  }
}

/** Waits for connections for a QEMU that takes one. */
export interface Acceptor {
  readonly endpoint: BulkEndpoint
  /** The first connection of a peer that may connect. Its bytes are not read. Rejects with CANCELLED when it is closed. */
  readonly first: Promise<Socket>
  close(): void
}

/** `mayConnect` is asked with the address of a peer of TCP. */
export async function acceptOne(
  place: ListenPlace,
  mayConnect: (address: string) => boolean,
): Promise<Acceptor> {
  const first = Promise.withResolvers<Socket>()
  first.promise.catch(() => {})
  const server = createServer({ pauseOnConnect: true, ...KEEP_ALIVE })
  let isTaken = false
  server.on('connection', (socket) => {
    socket.on('error', () => {})
    if (isTaken || (socket.remoteAddress !== undefined && !mayConnect(plainAddress(socket.remoteAddress)))) {
      socket.destroy()
      return
    }
    isTaken = true
    first.resolve(socket)
  })
  try {
    const endpoint = await listen(server, place)
    return {
      endpoint,
      first: first.promise,
      close: () => {
        first.reject(new AgentError('CANCELLED', `${nameOf(endpoint)}: closed`))
        server.close()
      },
    }
  } catch (error) {
    server.close()
    throw error
  }
}

/** Gives QEMU a socket, which stays open here. */
export async function give(
  { qmp, signal }: BulkQemu,
  socket: Socket | Server,
  { fdname, native }: Given,
): Promise<void> {
  await qmp.pass(
    { execute: 'getfd', arguments: { fdname } },
    { native, fd: openDescriptorOf(socket, fdname) },
    signal,
  )
}

async function giveRelayed(
  qemu: BulkQemu,
  holder: Pick<Holder, 'relay'>,
  socket: Socket,
  { fdname, native }: Given,
): Promise<void> {
  const [own, near] = unwrap('open', 'a socket pair', native.socketPair())
  try {
    await holder.relay({ near, wire: openDescriptorOf(socket, fdname) }, native)
    await qemu.qmp.pass({ execute: 'getfd', arguments: { fdname } }, { native, fd: own }, qemu.signal)
  } catch (error) {
    // A holder of an earlier version.
    if (!(error instanceof AgentError) || error.code !== 'UNIMPLEMENTED') throw error
    await give(qemu, socket, { fdname, native })
  } finally {
    native.close(own)
    native.close(near)
  }
}

/** -1 for one that is closed. */
function descriptorOf(socket: Socket | Server): number {
  return handleOf(socket)?.fd ?? -1
}

function openDescriptorOf(socket: Socket | Server, what: string): number {
  const fd = descriptorOf(socket)
  if (fd < 0) throw new AgentError('UNAVAILABLE', `${what}: the connection was closed`)
  return fd
}

async function listen(server: Server, place: ListenPlace): Promise<BulkEndpoint> {
  const listening = Promise.withResolvers<void>()
  server.once('listening', listening.resolve)
  server.on('error', (error) => {
    const name = 'path' in place ? place.path : place.host
    const text = `listen at ${name}: ${errnoOf(error) ?? error.message}`
    listening.reject(new AgentError('UNAVAILABLE', text, { cause: error }))
  })
  if ('path' in place) {
    await rm(place.path, { force: true })
    server.listen({ path: place.path })
  } else server.listen({ host: place.host, port: 0, exclusive: true })
  await listening.promise
  if ('path' in place) {
    await chmod(place.path, 0o600)
    return place
  }
  // A server of TCP has an address once it listens.
  return { host: place.host, port: (server.address() as AddressInfo).port }
}

export function nameOf(endpoint: BulkEndpoint): string {
  return 'path' in endpoint ? endpoint.path : `${endpoint.host}:${endpoint.port}`
}

/** A socket of IPv6 shows IPv4 as a part of it (RFC 4291, 2.5.5.2). */
export function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/, '')
}
