import { Socket } from 'node:net'
import { checkErrno, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from '../streams/streams.ts'

/**
 * The part of libuv's Pipe handle that is used here. Node knows no AF_VSOCK, and refuses its descriptors where
 * it takes one, but its handle for unix sockets works on any stream socket.
 */
export interface PipeHandle {
  readonly fd: Fd
  open(fd: Fd): number
  listen(backlog: number): number
  close(done?: () => void): void
  onconnection?: (status: number, client: PipeHandle | undefined) => void
}

type PipeClass = new (type: number) => PipeHandle

const SOCKET = 0
const SERVER = 1

/** Makes handles of the class that Node itself uses for unix sockets, which it has no public name for. */
export class SocketHandles {
  readonly #Pipe: PipeClass

  constructor(native: Native) {
    const [one, other] = unwrap('open', 'a socket pair', native.socketPair())
    native.close(other)
    // biome-ignore lint/plugin: the descriptor is a socket, and nothing is ever read from it here.
    const socket = new Socket({ fd: one })
    const handle = handleOf(socket)
    socket.destroy()
    if (handle === undefined) throw new Error('a socket of node:net has no handle')
    // Every class has this property, and this one is Pipe: the descriptor is a unix socket.
    this.#Pipe = handle.constructor as PipeClass
  }

  /** A listening handle over `fd`, which it owns from then on. */
  server(fd: Fd): PipeHandle {
    return this.#open(fd, SERVER)
  }

  /** A `net.Socket` over the connected socket `fd`, which it owns from then on. */
  socket(fd: Fd): Socket {
    return socketOver(this.#open(fd, SOCKET))
  }

  #open(fd: Fd, type: number): PipeHandle {
    const handle = new this.#Pipe(type)
    checkErrno('open', `socket fd ${fd}`, handle.open(fd))
    return handle
  }
}

/** A `net.Socket` over a connected handle. Its writing side stays open when the peer ends. */
export function socketOver(handle: PipeHandle): Socket {
  // `handle` takes any stream handle in every version of Node, which its documentation does not say.
  const options: object = { allowHalfOpen: true, handle }
  return new Socket(options)
}

/** The handle below a socket that is not closed. */
export function handleOf(socket: Socket): PipeHandle | undefined {
  if (!('_handle' in socket) || socket._handle === null || typeof socket._handle !== 'object')
    return undefined
  // Unix and AF_VSOCK sockets have a Pipe here; of others only `fd` is used, which all of them have.
  return socket._handle as PipeHandle
}
