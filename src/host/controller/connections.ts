import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import type { Logger } from '../../base/log.ts'
import type { ServedConnection } from '../../rpc/connection.ts'
import { serveGrpc } from '../../rpc/grpc/server.ts'
import { LIMITS, Totals } from '../../rpc/limits.ts'
import { startTimer } from '../../rpc/timer.ts'
import type { Peer } from '../tls/credentials.ts'
import type { ControllerMetrics } from './metrics.ts'
import { type DeclaredMethod, tablesFor } from './serve.ts'

/** A host has a stream for each VM. */
const CONTROLLER_LIMITS = {
  ...LIMITS,
  total: { ...LIMITS.total, streams: { limit: 16_384, reserve: 0 } },
  connection: { streams: 128 },
}

/** Of an answer: a page of VMs. */
const ANSWER_BYTES = 32 * 1024 * 1024

/** How long calls may go on after `close`. */
const CLOSE_MS = 5000

/** A host that vanishes is noticed so long after it has last spoken, and 10 s more for the kernel's probes. */
const KEEP_ALIVE_MS = 5000

/** The connections of hosts. */
export class Connections {
  readonly #parts: {
    readonly declared: readonly DeclaredMethod[]
    readonly metrics: ControllerMetrics
    readonly log: Logger
  }
  readonly #totals = new Totals(CONTROLLER_LIMITS)
  readonly #open = new Map<TLSSocket, ServedConnection>()

  constructor(parts: {
    readonly declared: readonly DeclaredMethod[]
    readonly metrics: ControllerMetrics
    readonly log: Logger
  }) {
    this.#parts = parts
  }

  /** Serves an accepted, paused socket. */
  serve(socket: TLSSocket, peer: Peer): void {
    const { declared, log, metrics } = this.#parts
    const totals = this.#totals
    const own = totals.addConnection((reason) => {
      log.debug('connection closed', { peer: peer.id, reason })
      socket.destroy()
    })
    if (own === undefined) {
      log.warn('connection refused', { peer: peer.id, reason: 'too many connections' })
      socket.destroy()
      return
    }
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    const served = serveGrpc(socket, {
      ...tablesFor(declared, peer, { totals, metrics, log }),
      peer: `${peer.role} ${peer.id}`,
      firstBytes: Buffer.alloc(0),
      readDescriptors,
      answerBytes: ANSWER_BYTES,
      checkCall: async () => undefined,
      totals: own,
      startTimer,
    })
    this.#open.set(socket, served)
    socket.once('close', () => {
      own.end()
      this.#open.delete(socket)
    })
  }

  /** The calls have 5 s more. */
  close(): void {
    const late = () => {
      for (const socket of this.#open.keys()) socket.destroy()
    }
    for (const [socket, connection] of this.#open) {
      // A client that has not spoken yet does not hear that it should go.
      if (socket.bytesRead === 0) socket.destroy()
      else connection.drain()
    }
    startTimer(CLOSE_MS, late)
  }
}

/** The set of all descriptors lies beside the code, in the sources and in a bundle. */
async function readDescriptors(): Promise<Uint8Array> {
  return readFile(join(import.meta.dirname, '../../gen/descriptors.binpb'))
}
