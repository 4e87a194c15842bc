import { type Server, Socket } from 'node:net'
import { checkErrno, unwrap } from '../errors.ts'
import type { Native } from '../native.ts'
import type { Fd } from '../streams/streams.ts'

/** libuv's Pipe handle. Node refuses AF_VSOCK descriptors, but this handle works on any stream socket. */
export interface PipeHandle {
  readonly fd: Fd
  open(fd: Fd): number
}

type PipeClass = new (type: number) => PipeHandle

const SOCKET = 0

/** Makes handles of the class that Node uses for unix sockets and does not export. */
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
    // The constructor of this handle is Pipe, because the descriptor is a unix socket.
    this.#Pipe = handle.constructor as PipeClass
  }

  /** A `net.Socket` that owns the connected socket `fd`. Its writing side stays open after the peer's end. */
  socket(fd: Fd): Socket {
    const handle = new this.#Pipe(SOCKET)
    checkErrno('open', `socket fd ${fd}`, handle.open(fd))
    // `handle` is not documented, but every version of Node accepts any stream handle.
    const options: object = { allowHalfOpen: true, handle }
    return new Socket(options)
  }
}

/** The handle below a socket; undefined when the socket is closed. */
export function handleOf(socket: Socket | Server): PipeHandle | undefined {
  if (!('_handle' in socket) || socket._handle === null || typeof socket._handle !== 'object')
    return undefined
  // Unix and AF_VSOCK sockets have a Pipe. Only `fd` is used of other handles, and all have it.
  return socket._handle as PipeHandle
}
