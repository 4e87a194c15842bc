import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect, createServer, type Server, type TLSSocket } from 'node:tls'
import { TLS } from '../../../../../src/host/tls/credentials.ts'
import type { Endpoint } from '../../../../../src/host/tls/endpoint.ts'
import type { Authority } from '../sign-certificates.ts'

/** `there` is towards the one who is called. */
type Direction = 'there' | 'back'

export interface Cut {
  readonly direction: Direction
  /** How many bytes of that direction arrive. */
  readonly after: number
}

/**
 * Passes on what callers and the one they call send each other below TLS, for which it has the certificates of both. It cuts
 * one connection at a byte, which TLS itself would round to a record.
 */
export class CuttingLink {
  /** How many bytes the connections have carried that were opened since the last call of {@link cutNext}. */
  readonly carried: Record<Direction, number> = { there: 0, back: 0 }
  readonly #server: Server
  readonly #sockets = new Set<TLSSocket>()
  #cut: Cut | undefined

  private constructor(
    to: Endpoint,
    {
      authority,
      caller,
      called,
    }: { readonly authority: Authority; readonly caller: string; readonly called: string },
  ) {
    const alpn = { ...TLS, ALPNProtocols: [...TLS.ALPNProtocols] }
    this.#server = createServer({ ...authority.pemOf(called), ...alpn, requestCert: true }, (from) => {
      const into = connect({ ...authority.pemOf(caller), ...alpn, ...to, servername: called })
      const left = this.#cut
      this.#cut = undefined
      for (const socket of [from, into]) {
        this.#sockets.add(socket)
        socket
          .on('error', () => {})
          .once('close', () => {
            this.#sockets.delete(socket)
            from.destroy()
            into.destroy()
          })
      }
      if (left?.after === 0) return void from.destroy()
      this.#pass({ from, into, direction: 'there', cut: left })
      this.#pass({ from: into, into: from, direction: 'back', cut: left })
    })
  }

  /** `caller` and `called` are the names of the certificates that it shows in place of theirs. */
  static async to(
    endpoint: Endpoint,
    names: { readonly authority: Authority; readonly caller: string; readonly called: string },
  ): Promise<CuttingLink> {
    const link = new CuttingLink(endpoint, names)
    link.#server.listen(0, '127.0.0.1')
    await once(link.#server, 'listening')
    return link
  }

  get endpoint(): Endpoint {
    const { address: host, port } = this.#server.address() as AddressInfo
    return { host, port }
  }

  /** Cuts the next connection; later ones are whole. Without a cut, all are. */
  cutNext(cut?: Cut): void {
    this.#cut = cut
    Object.assign(this.carried, { there: 0, back: 0 })
  }

  /** How many connections are open. */
  get open(): number {
    return this.#sockets.size / 2
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  #pass({
    from,
    into,
    direction,
    cut,
  }: {
    readonly from: TLSSocket
    readonly into: TLSSocket
    readonly direction: Direction
    readonly cut: Cut | undefined
  }): void {
    let left = cut?.direction === direction ? cut.after : Number.POSITIVE_INFINITY
    from.on('data', (bytes: Buffer) => {
      if (left <= 0) return
      const passed = bytes.subarray(0, left)
      left -= passed.length
      this.carried[direction] += passed.length
      if (left > 0) {
        if (!into.write(passed)) {
          from.pause()
          into.once('drain', () => from.resume())
        }
        return
      }
      // What was passed on arrives, and nothing more of either side.
      from.pause()
      into.end(passed, () => from.destroy())
    })
    from.once('end', () => into.end())
  }
}
