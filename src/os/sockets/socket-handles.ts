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

/** Who owns the chunks of 'data' events: the listener, or the next read. */
export type Chunks = 'owned' | 'borrowed'

/** The size of libuv's own reads. */
const READ_BYTES = 64 * 1024

/** Makes handles of the class that Node uses for unix sockets and does not export. */
export class SocketHandles {
  readonly #Pipe: PipeClass
  /** For the reads of all sockets, because the chunk of a read is used before the next read. */
  #borrowed: Buffer | undefined

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
  socket(fd: Fd, chunks: Chunks = 'owned'): Socket {
    const handle = new this.#Pipe(SOCKET)
    checkErrno('open', `socket fd ${fd}`, handle.open(fd))
    // `handle` is not documented, but every version of Node accepts any stream handle.
    const options: object = { allowHalfOpen: true, handle }
    if (chunks === 'owned') return new Socket(options)
    this.#borrowed ??= Buffer.allocUnsafeSlow(READ_BYTES)
    const buffer = this.#borrowed
    const callback = (length: number) => socket.emit('data', buffer.subarray(0, length))
    const reading: object = { ...options, onread: { buffer, callback } }
    const socket = new Socket(reading)
    return socket
  }
}

/** The handle below a socket; undefined when the socket is closed. */
export function handleOf(socket: Socket | Server): PipeHandle | undefined {
  if (!('_handle' in socket) || socket._handle === null || typeof socket._handle !== 'object')
    return undefined
  // Unix and AF_VSOCK sockets have a Pipe. Only `fd` is used of other handles, and all have it.
  return socket._handle as PipeHandle
}
