import { withTimeout } from '../../../base/abort.ts'
import { Changes } from '../../../base/changes.ts'
import { AgentError } from '../../../base/errors.ts'
import type { MovedStream, StreamTotal } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import type { StreamName } from '../port-connections.ts'
import type { OpenLink, OpenStream, PortLinkContext } from './open-link.ts'
import { type Connected, PortLink } from './port-link.ts'
import { type StreamRecord, StreamRecords } from './stream-records.ts'

/** The memory of all outputs that wait to be acknowledged: 256 KiB each (native/addon/relay/kept.h). */
const KEPT_MIB = 16
const MOST_KEPT = KEPT_MIB * 4

/** How many streams connect at a time. */
const CONNECTING_AT_ONCE = 64

const NEW_RECORD = { state: 'attached', isNamed: false, endNs: 0n, heldNs: 0n } as const

/** How long streams stand that no call attaches. */
const HELD_MS = 600_000

/** How long a planned stop waits for the totals of readers. */
const ACKNOWLEDGED_WITHIN_MS = 5000

/** How long relays may take to stop. */
const STOPPED_WITHIN_MS = 10_000

/** The connections of all streams over ports. */
export class PortLinks {
  readonly #context: PortLinkContext
  readonly #records: StreamRecords
  readonly #links = new Map<string, PortLink>()
  readonly #changes = new Changes()
  readonly #slots = new Changes()
  #connecting = 0
  /** Between {@link detach} and {@link attach}. */
  #standsStill = false

  constructor(context: PortLinkContext) {
    this.#context = context
    this.#records = new StreamRecords(context.os)
  }

  get resumes(): boolean {
    return this.#context.resumes
  }

  /** Call it before streams are restored. */
  restore(): void {
    this.#records.restore()
  }

  /** Call it once all streams are restored. */
  restored(): void {
    const open = new Set([...this.#links.values()].flatMap(({ names }) => names))
    this.#records.freeAllBut(({ key, stream }) => open.has(`${key} ${stream}`))
  }

  recordOf(key: string, stream: StreamName): StreamRecord | undefined {
    return this.#records.find(key, stream)
  }

  /** Throws UNAVAILABLE while the streams stand still. */
  checkOpen(): void {
    if (!this.#standsStill) return
    throw new AgentError('UNAVAILABLE', 'ports: the streams wait for Attach', { fault: 'caller' })
  }

  get standsStill(): boolean {
    return this.#standsStill
  }

  /** Resolves once no stream stands still. Throws the reason of `signal` when that fires first. */
  async attached(signal: AbortSignal): Promise<void> {
    while (this.#standsStill) await this.#changes.next(signal)
  }

  /**
   * Returns undefined for a stream that has no port of which anything is known. One that is begun while the others stand
   * still, by a call from before, stands still too.
   */
  open(stream: OpenStream): OpenLink | undefined {
    const { port } = stream
    const { key } = stream.stored
    if (port === 0) return undefined
    const before = this.#records.find(key, stream.stream)
    const record = before ?? { key, stream: stream.stream, port, ...NEW_RECORD }
    if (before === undefined) this.#refuseMore(stream)
    const totals = this.#records.add(record)
    if (totals === undefined) return undefined
    const name = `${key} ${port}`
    const link = this.#links.get(name) ?? this.#newLink(name, record)
    const opened = link.open(stream, totals, before === undefined)
    // Its relay starts in this turn.
    if (this.#standsStill) queueMicrotask(() => this.#standsStill && void link.detach(HELD_MS))
    return opened
  }

  /**
   * Brings every stream to a stop between two bytes, closes its connection, and returns the totals of all. They stand
   * until {@link attach}, at most ten minutes. Throws DEADLINE_EXCEEDED when a relay does not stop.
   */
  async detach(): Promise<readonly StreamTotal[]> {
    this.#standsStill = true
    const stopped = Promise.all([...this.#links.values()].map((link) => link.detach(HELD_MS)))
    const { clock } = this.#context.os
    const late = () => new AgentError('DEADLINE_EXCEEDED', 'streams: not stopped in time')
    // A reader that tells no total gets its bytes again later.
    const stopTimer = clock.startTimer(ACKNOWLEDGED_WITHIN_MS, () => {
      for (const link of this.#links.values()) link.drop()
    })
    await withTimeout(clock, STOPPED_WITHIN_MS, stopped, late).finally(stopTimer)
    return this.totals()
  }

  /**
   * Connects the streams without a connection, and gives those that are named another, even at the same port. Throws
   * INVALID_ARGUMENT, NOT_FOUND or ALREADY_EXISTS, and then changes nothing.
   */
  async attach(moved: readonly MovedStream[]): Promise<void> {
    const links = [...this.#links.values()]
    const ports = new Map(moved.map(({ oldPort, newPort }) => [oldPort, newPort]))
    if (ports.size < moved.length || new Set(ports.values()).size < moved.length) {
      throw new AgentError('INVALID_ARGUMENT', 'streams: a port is named twice')
    }
    for (const { oldPort, newPort } of moved) {
      if (newPort === 0) throw new AgentError('INVALID_ARGUMENT', 'streams: new_port is 0')
      if (!links.some(({ port }) => port === oldPort))
        throw new AgentError('NOT_FOUND', `streams: no stream has the port ${oldPort}`)
      // Two streams of a process with one port would share a connection.
      if (!ports.has(newPort) && links.some(({ port }) => port === newPort))
        throw new AgentError('ALREADY_EXISTS', `streams: another stream has the port ${newPort}`)
    }
    this.#standsStill = false
    for (const link of links) {
      const port = ports.get(link.port)
      if (port !== undefined) link.moveTo(port)
      link.release()
    }
    this.#changes.announce()
  }

  /**
   * Dials all streams again: the daemon behind their connections may be another. A stream that would not outlive its
   * connection keeps it, and so does one that the host has dialled, unless it has named another.
   */
  async dialAgain(): Promise<void> {
    const { graceMs, hostConnections } = this.#context
    const links = graceMs === 0 ? [] : [...this.#links.values()]
    for (const link of links) {
      const isNamed = link.totals().some(({ name }) => hostConnections.hasNamed?.(name))
      if (hostConnections.dialsHost || isNamed) link.move(link.port)
    }
    await this.attach([])
  }

  totals(): readonly StreamTotal[] {
    return [...this.#links.values()].flatMap((link) => link.totals())
  }

  /** Throws RESOURCE_EXHAUSTED when the outputs in memory have no room for one more. */
  #refuseMore({ stream }: OpenStream): void {
    if (!this.resumes || stream === 'stdin') return
    const count = [...this.#links.values()].reduce((sum, { keptCount }) => sum + keptCount, 0)
    if (count < MOST_KEPT) return
    const what = `${MOST_KEPT} outputs hold ${KEPT_MIB} MiB until they are acknowledged, want no more`
    throw new AgentError('RESOURCE_EXHAUSTED', `${stream}: ${what}`)
  }

  #newLink(name: string, record: StreamRecord): PortLink {
    const link = new PortLink(this.#context, this.#records, record, {
      over: () => void this.#links.delete(name),
      changed: async (signal) => {
        const { arrivals = this.#changes } = this.#context.hostConnections
        await Promise.race([this.#changes.next(signal), arrivals.next(signal)])
      },
      connect: (signal, connect) => this.#connect(signal, connect),
    })
    this.#links.set(name, link)
    return link
  }

  async #connect(signal: AbortSignal, connect: () => Promise<Connected>): Promise<Connected> {
    while (this.#connecting >= CONNECTING_AT_ONCE) await this.#slots.next(signal)
    this.#connecting += 1
    try {
      return await connect()
    } finally {
      this.#connecting -= 1
      this.#slots.announceOne()
    }
  }
}
