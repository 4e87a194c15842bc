import { abortable } from '../../../../src/base/abort.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type {
  HostAddress,
  HostListener,
  HostPeer,
  HostSockets,
} from '../../../../src/os/sockets/host-sockets.ts'
import type { Fd } from '../../../../src/os/streams/streams.ts'
import type { FakeStreams } from './fake-streams.ts'

export class FakeHostSockets implements HostSockets {
  readonly #streams: FakeStreams
  readonly #accepting = new Map<string, PromiseWithResolvers<Fd>>()
  readonly #ignoring = new Set<string>()
  readonly #serving = new Set<string>()
  readonly #listeners = new Map<string, HostListener>()
  readonly #unconnected = new Set<Fd>()

  constructor(streams: FakeStreams) {
    this.#streams = streams
  }

  socket(): Fd {
    const socket = this.#streams.socket()
    this.#unconnected.add(socket)
    return socket
  }

  async connect(socket: Fd, address: HostAddress, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const name = nameOf(address)
    // The previous agent has already connected this socket.
    if (!this.#unconnected.delete(socket)) return
    if (this.#ignoring.has(name)) await abortable(new Promise<never>(() => {}), signal)
    if (this.#serving.has(name)) return void this.#serve(this.#streams.otherEnd(socket))
    const accepting = this.#accepting.get(name)
    if (accepting === undefined) throw kernelError('connect', name, 'ECONNRESET')
    this.#accepting.delete(name)
    accepting.resolve(this.#streams.otherEnd(socket))
  }

  async listen(_name: string, address: HostAddress, listener: HostListener): Promise<{ close(): void }> {
    this.#listeners.set(nameOf(address), listener)
    return { close: () => this.#listeners.delete(nameOf(address)) }
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
    const listener = this.#listeners.get(nameOf({ kind: 'vsock', port }))
    if (listener === undefined) throw kernelError('connect', `vsock port ${port}`, 'ECONNRESET')
    const { parentEnd, childEnd } = this.#streams.socketPair()
    listener.connection(parentEnd, peer)
    return childEnd
  }

  async #serve(end: Fd): Promise<void> {
    do await this.#streams.readable(end)
    while (this.#streams.tryRead(end, 65536)?.length !== 0)
    this.#streams.close(end)
  }
}

function nameOf(address: HostAddress): string {
  return address.kind === 'unix' ? address.path : `vsock port ${address.port}`
}
