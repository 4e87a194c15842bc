import { abortable } from '../../../../src/base/abort.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type {
  HostAddress,
  HostListener,
  HostPeer,
  HostSockets,
} from '../../../../src/os/sockets/host-sockets.ts'
import type { Fd } from '../../../../src/os/streams/streams.ts'
import type { FakeDescriptors } from '../supervisor/fake-descriptors.ts'
import type { FakeStreams } from './fake-streams.ts'

/** What an agent has listened at. It is open while an agent listens, or the store has its socket. */
interface Port {
  readonly storedAs: string
  listener: HostListener | undefined
  /** Not accepted yet. */
  readonly waiting: (readonly [Fd, HostPeer])[]
}

export class FakeHostSockets implements HostSockets {
  readonly #streams: FakeStreams
  readonly #descriptors: FakeDescriptors
  readonly #accepting = new Map<string, PromiseWithResolvers<Fd>>()
  readonly #ignoring = new Set<string>()
  readonly #serving = new Set<string>()
  readonly #ports = new Map<string, Port>()

  constructor(streams: FakeStreams, descriptors: FakeDescriptors) {
    this.#streams = streams
    this.#descriptors = descriptors
  }

  socket(): Fd {
    return this.#streams.socket()
  }

  async connect(socket: Fd, address: HostAddress, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const name = nameOf(address)
    // The previous agent has already connected this socket.
    if (this.#streams.isConnected(socket)) return
    if (this.#ignoring.has(name)) await abortable(new Promise<never>(() => {}), signal)
    if (this.#serving.has(name)) return void this.#serve(this.#streams.otherEnd(socket))
    const accepting = this.#accepting.get(name)
    this.#accepting.delete(name)
    if (accepting !== undefined) return accepting.resolve(this.#streams.otherEnd(socket))
    const port = this.#openPort(address)
    // The guest connects from a port that the kernel chooses.
    const peer: HostPeer =
      address.kind === 'unix' ? { kind: 'unix', path: '' } : { kind: 'vsock', cid: 1, port: 2 ** 31 }
    arrive(port, this.#streams.otherEnd(socket), peer)
  }

  async listen(name: string, address: HostAddress, listener: HostListener): Promise<{ close(): void }> {
    const inherited = this.#descriptors.take(name)
    const known = this.#ports.get(nameOf(address))
    if (inherited === undefined && this.#isOpen(known))
      throw kernelError('listen', nameOf(address), 'EADDRINUSE')
    const fd = inherited ?? this.#streams.socket()
    const port: Port = { storedAs: name, listener: undefined, waiting: known?.waiting ?? [] }
    this.#ports.set(nameOf(address), port)
    try {
      if (inherited === undefined) await this.#descriptors.store(name, fd)
    } catch (error) {
      this.#streams.close(fd)
      throw error
    }
    port.listener = listener
    for (const [connection, peer] of port.waiting.splice(0)) listener.connection(connection, peer)
    return {
      close: () => {
        port.listener = undefined
        this.#streams.close(fd)
      },
    }
  }

  /** Accepts one connection at a vsock port. Resolves with the host's end. */
  accept(port: number): Promise<Fd> {
    const accepting = Promise.withResolvers<Fd>()
    this.#accepting.set(nameOf({ kind: 'vsock', port }), accepting)
    return accepting.promise
  }

  /** Accepts every connection at a vsock port, reads it to its end and closes it. */
  serve(port: number): void {
    this.#serving.add(nameOf({ kind: 'vsock', port }))
  }

  ignore(port: number): void {
    this.#ignoring.add(nameOf({ kind: 'vsock', port }))
  }

  /** Connects to the agent's vsock port. Returns the peer's end. */
  dial(port: number, peer: HostPeer): Fd {
    const open = this.#openPort({ kind: 'vsock', port })
    const { parentEnd, childEnd } = this.#streams.socketPair()
    arrive(open, parentEnd, peer)
    return childEnd
  }

  #openPort(address: HostAddress): Port {
    const port = this.#ports.get(nameOf(address))
    if (port !== undefined && this.#isOpen(port)) return port
    // The path of a socket stays when the socket is closed.
    const errno = address.kind === 'vsock' ? 'ECONNRESET' : port === undefined ? 'ENOENT' : 'ECONNREFUSED'
    throw kernelError('connect', nameOf(address), errno)
  }

  #isOpen(port: Port | undefined): boolean {
    if (port === undefined) return false
    return port.listener !== undefined || this.#descriptors.stored.includes(port.storedAs)
  }

  async #serve(end: Fd): Promise<void> {
    do await this.#streams.readable(end)
    while (this.#streams.tryRead(end, 65536)?.length !== 0)
    this.#streams.close(end)
  }
}

function arrive({ listener, waiting }: Port, fd: Fd, peer: HostPeer): void {
  if (listener === undefined) waiting.push([fd, peer])
  else listener.connection(fd, peer)
}

function nameOf(address: HostAddress): string {
  return address.kind === 'unix' ? address.path : `vsock port ${address.port}`
}
