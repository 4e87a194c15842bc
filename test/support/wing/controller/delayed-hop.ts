import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import type { Endpoint } from '../../../../src/host/tls/endpoint.ts'

/** `there` is towards the endpoint. */
export type Direction = 'there' | 'back'

interface Delay {
  readonly ms: number
  readonly onPassed: () => void
}

const NONE: Delay = { ms: 0, onPassed: () => {} }

/**
 * A listener on loopback that passes the bytes of its connections on to an endpoint and back, each direction as late as it is told.
 * What is on its way to the endpoint arrives although the caller has gone.
 */
export class DelayedHop {
  readonly #delays: Record<Direction, Delay> = { there: NONE, back: NONE }
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(to: Endpoint) {
    this.#server = createServer({ allowHalfOpen: true }, (caller) => {
      const passed = connect({ ...to, allowHalfOpen: true })
      this.#pass(caller, passed, 'there')
      this.#pass(passed, caller, 'back')
    }).listen(0, '127.0.0.1')
  }

  static async to(endpoint: Endpoint): Promise<DelayedHop> {
    const hop = new DelayedHop(endpoint)
    await once(hop.#server, 'listening')
    return hop
  }

  get endpoint(): Endpoint {
    const address = this.#server.address()
    if (typeof address !== 'object' || address === null) throw new Error('the hop is closed')
    return { host: address.address, port: address.port }
  }

  /** Delays what comes from now on. Resolves once the first of it is passed on. */
  async delay(direction: Direction, ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#delays[direction] = { ms, onPassed: resolve }
    await promise
  }

  /** Delays no more of what comes from now on. */
  calm(direction: Direction): void {
    this.#delays[direction] = NONE
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  #pass(from: Socket, to: Socket, direction: Direction): void {
    this.#sockets.add(from.setNoDelay())
    let last = Promise.resolve()
    const later = (work: () => void) => {
      const { ms, onPassed } = this.#delays[direction]
      const due = ms === 0 ? Promise.resolve() : delay(ms)
      last = last
        .then(() => due)
        .then(onPassed)
        .then(work)
    }
    from.on('data', (bytes) => later(() => to.write(bytes)))
    from.on('error', () => {})
    from.on('close', () => {
      this.#sockets.delete(from)
      later(() => to.end())
    })
    from.on('end', () => later(() => to.end()))
  }
}
