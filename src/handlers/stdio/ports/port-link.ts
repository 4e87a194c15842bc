import { Changes } from '../../../base/changes.ts'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import type { StreamTotal } from '../../../gen/microvm/agent/v1/lifecycle.ts'
import type { AttachedRelay, Fd, RelayLink } from '../../../os/streams/streams.ts'
import { NO_CALLER } from '../../../state/request.ts'
import type { HostConnections } from '../host-connections.ts'
import type { StreamName } from '../port-connections.ts'
import type { DescriptorName } from '../stored-descriptors.ts'
import type { OpenLink, OpenStream, PortLinkContext } from './open-link.ts'
import { greet, keptOutput, nameOfStream, takeOpening } from './resumed-stream.ts'
import type { StreamRecord, StreamRecords } from './stream-records.ts'
import { LOST, tellStreams, UNSENT } from './tell-streams.ts'

/** The pauses between two attempts to connect, doubled each time. A new device ends a pause. */
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 5000

/** For how long a stream whose planned stop is over tries to connect, at least. */
const ATTACHED_WITHIN_MS = 10_000

export type Connected = Awaited<ReturnType<HostConnections['connect']>>

/** A relay that uses the connection. */
interface End extends OpenStream {
  relay: AttachedRelay | undefined
  isDetached: boolean
  readonly kept: RelayLink['kept']
}

interface LinkOwner {
  over(): void
  /** Resolves when a device has come, or a caller asks for connections. */
  changed(signal: AbortSignal): Promise<void>
  connect(signal: AbortSignal, connect: () => Promise<Connected>): Promise<Connected>
}

/**
 * The connection of one port, which both streams of a terminal may use. Without it, a stream waits, and its process with
 * it when the pipe is full. It ends when the port cannot be dialled again within the grace.
 */
export class PortLink {
  port: number
  readonly #context: PortLinkContext
  readonly #records: StreamRecords
  readonly #owner: LinkOwner
  readonly #key: string
  readonly #ends = new Map<StreamName, End>()
  readonly #over = new AbortController()
  readonly #changes = new Changes()
  #endNs: bigint
  #heldNs: bigint
  #reconnecting: Promise<void> | undefined
  /** Whether all has been done for a lost connection but to make another. */
  #isWaiting = false
  #dialled: Fd | undefined
  /** Whether a caller has named the port from which the host dials it, the only way to tell a stream that does not resume. */
  #isNamed: boolean

  constructor(context: PortLinkContext, records: StreamRecords, record: StreamRecord, owner: LinkOwner) {
    this.#context = context
    this.#records = records
    this.#owner = owner
    this.#key = record.key
    this.port = record.port
    this.#endNs = record.endNs
    this.#heldNs = record.heldNs
    this.#isNamed = record.isNamed
  }

  get names(): readonly string[] {
    return [...this.#ends.keys()].map((stream) => `${this.#key} ${stream}`)
  }

  /** How many of its streams hold output in memory. */
  get keptCount(): number {
    return [...this.#ends.values()].filter(({ kept }) => kept !== undefined).length
  }

  /** `isNew`: its connection has not been used. */
  open(stream: OpenStream, totals: RelayLink['totals'], isNew: boolean): OpenLink {
    const isDetached = stream.connection === undefined
    const { resumes, graceMs, os } = this.#context
    const end: End = {
      ...stream,
      relay: undefined,
      isDetached,
      kept: resumes ? keptOutput(os.streams, stream) : undefined,
    }
    this.#ends.set(stream.stream, end)
    if (stream.dialled !== undefined && this.#dialled !== undefined) os.streams.close(stream.dialled)
    else this.#dialled = stream.dialled
    // A connection that has ended already ends the stream.
    if (isNew && stream.connection !== undefined) attempt(() => this.#greet(stream.connection ?? -1, end))
    return {
      totals,
      outlivesDevice: graceMs > 0,
      resumes,
      kept: end.kept,
      started: (relay) => {
        end.relay = relay
        // Later, because a terminal's other stream is opened after this one.
        if (isDetached) queueMicrotask(() => this.#lost(end))
      },
      detached: () => this.#lost(end),
      ending: (errno) => {
        const totals = this.totals().filter((one) => one.stream === end.stream)
        if (errno === 'EPROTO') tellStreams(this.#context, totals, { action: 'ended', why: UNSENT })
        this.#ends.delete(end.stream)
        if (this.#ends.size === 0) this.#over.abort()
      },
      over: () => this.#close(end),
      abandon: () => {
        if (end.kept !== undefined) for (const fd of Object.values(end.kept)) os.streams.close(fd)
        this.#close(end)
      },
    }
  }

  #greet(connection: Fd, { stream, kept }: End): void {
    const { resumes, os } = this.#context
    if (!resumes) return
    const total = this.#records.arrived({ key: this.#key, stream })
    if (kept !== undefined) this.#records.sendFrom({ key: this.#key, stream }, total)
    greet(os.streams, connection, this.#nameIn(stream), total)
  }

  #takeOpening(connection: Fd, { stream, giveUp }: End): void {
    const { resumes, hostConnections, os } = this.#context
    if (!resumes || hostConnections.dialsHost) return
    const total = takeOpening(os.streams, connection, stream)
    if (total <= this.#records.totals({ key: this.#key, stream }).received) return
    tellStreams(this.#context, this.totals(), { action: 'ended', why: UNSENT })
    giveUp()
    throw new AgentError('INTERNAL', UNSENT)
  }

  #nameIn(stream: StreamName): Uint8Array {
    return this.#context.resumes ? nameOfStream(this.#key, stream) : new Uint8Array(0)
  }

  /** Resolves when the streams stand still and that is saved. */
  async detach(timeoutMs: number): Promise<void> {
    const nowNs = this.#context.os.clock.boottimeNs()
    this.#heldNs = nowNs + milliseconds(timeoutMs)
    this.#endNs = this.#heldNs + milliseconds(Math.max(this.#context.graceMs, ATTACHED_WITHIN_MS))
    this.#saveLoss()
    this.drop()
    while (!this.#over.signal.aborted && !this.#isWaiting) {
      await this.#changes.next(this.#over.signal).catch(() => {})
    }
    this.#save('detached')
  }

  /** Goes on at a port that a caller has named. */
  moveTo(port: number): void {
    this.#isNamed = true
    this.move(port)
  }

  move(port: number): void {
    this.port = port
    this.#saveLoss()
    // The second time it does not wait for totals, which a dead daemon does not bring.
    this.drop()
    this.drop()
  }

  /** Before a relay lets its connection go, which the next agent must not use again. */
  #saveLoss(): void {
    this.#save([...this.#ends.values()].some(({ isDetached }) => !isDetached) ? 'losing' : 'detached')
  }

  release(): void {
    if (this.#heldNs === 0n) return
    const left = milliseconds(Math.max(this.#context.graceMs, ATTACHED_WITHIN_MS))
    this.#endNs = this.#context.os.clock.boottimeNs() + left
    this.#heldNs = 0n
    if (this.#isWaiting) this.#save('detached')
    this.#changes.announce()
  }

  totals(): readonly StreamTotal[] {
    return [...this.#ends.keys()].map((stream) => {
      const { delivered, received } = this.#records.totals({ key: this.#key, stream })
      return {
        ...(this.#context.ownerOf(this.#key) ?? { containerId: '', execId: '' }),
        ...{ stream, port: this.port, name: this.#nameIn(stream) },
        total: stream === 'stdin' ? received : delivered,
        acknowledged: this.#context.resumes ? this.#records.arrived({ key: this.#key, stream }) : undefined,
        state: this.#records.find(this.#key, stream)?.state ?? '',
      }
    })
  }

  /** Closes its connection, once its readers have told what they have; called again, at once. */
  drop(): void {
    const attached = [...this.#ends.values()].filter(({ isDetached }) => !isDetached)
    // The next agent must not use a connection again that a relay has let go.
    if (attached.length > 0) this.#save('losing')
    for (const { relay } of attached) relay?.detach()
  }

  #close(end: End): void {
    this.#ends.delete(end.stream)
    this.#records.free({ key: this.#key, stream: end.stream })
    this.#reconnectIfLost()
    if (this.#ends.size > 0) return
    this.#over.abort()
    this.#owner.over()
    if (this.#dialled !== undefined) this.#context.os.streams.close(this.#dialled)
    this.#dialled = undefined
  }

  #lost(end: End): void {
    end.isDetached = true
    this.drop()
    this.#reconnectIfLost()
  }

  #reconnectIfLost(): void {
    if (this.#reconnecting !== undefined || this.#ends.size === 0) return
    if ([...this.#ends.values()].some(({ isDetached }) => !isDetached)) return
    this.#reconnecting = this.#reconnect()
      .catch((error: unknown) => {
        if (!this.#over.signal.aborted) this.#giveUp(messageOf(error))
      })
      .finally(() => {
        this.#reconnecting = undefined
        this.#isWaiting = false
      })
  }

  async #reconnect(): Promise<void> {
    const { signal } = this.#over
    await this.#letGo()
    this.#isWaiting = true
    this.#changes.announce()
    let reason = 'no time was left'
    for (let pauseMs = FIRST_PAUSE_MS; this.#leftMs(this.#endNs) > 0; ) {
      signal.throwIfAborted()
      // Before the attempt, which finds no device that comes during it.
      const watch = this.#watch()
      try {
        const heldMs = this.#leftMs(this.#heldNs)
        if (heldMs > 0) await watch.changed(heldMs)
        else return await this.#attach(await this.#owner.connect(signal, () => this.#connect()))
      } catch (error) {
        signal.throwIfAborted()
        reason = messageOf(error)
        // Without a device nothing can change before there is one.
        await watch.changed(errnoOf(error) === 'ENODEV' ? this.#leftMs(this.#endNs) : pauseMs)
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)
      } finally {
        watch.end()
      }
    }
    this.#giveUp(reason)
  }

  /** Saves each step of the loss, and tells it, unless the previous agent has done so. */
  async #letGo(): Promise<void> {
    const { graceMs, resumes, os } = this.#context
    const records = [...this.#ends.values()].map(({ stream }) => this.#records.find(this.#key, stream))
    if (records.every((record) => record?.state === 'detached')) return
    if (this.#endNs === 0n) this.#endNs = os.clock.boottimeNs() + milliseconds(graceMs || ATTACHED_WITHIN_MS)
    this.#save('losing')
    await this.#forgetConnection()
    this.#save('detached')
    const isPlanned = this.#heldNs > 0n || resumes
    tellStreams(this.#context, this.totals(), { action: 'detached', why: isPlanned ? '' : LOST })
  }

  async #connect(): Promise<Connected> {
    let made = this.#dialled
    this.#dialled = undefined
    // It may have been greeted.
    if (made !== undefined && this.#context.resumes) {
      this.#context.os.streams.close(made)
      await this.#forgetConnection()
      made = undefined
    }
    const [stream = 'stdout'] = this.#ends.keys()
    const again = {
      made,
      name: this.#nameIn(stream),
      isByPort: !this.#context.resumes && this.#isNamed,
      keep: (fd: Fd) => this.#store(fd),
    }
    const call = { ...NO_CALLER, signal: this.#over.signal }
    try {
      return await this.#context.hostConnections.connect({ port: this.port, stream, again }, call)
    } catch (error) {
      // Otherwise the next attempt's connection would not be stored.
      await this.#forgetConnection()
      throw error
    }
  }

  async #attach({ fd, settled, namedFrom }: Connected): Promise<void> {
    const { streams } = this.#context.os
    this.#store(fd)
    // Without room in vminit, the stream goes on as long as this agent lives.
    await Promise.all([...this.#ends.values()].map(({ stored }) => stored.accepted().catch(() => {})))
    await settled()
    try {
      this.#over.signal.throwIfAborted()
      if (this.#leftMs(this.#heldNs) > 0)
        throw new AgentError('INTERNAL', 'connected while the streams stand')
      for (const end of this.#ends.values()) {
        this.#takeOpening(fd, end)
        this.#greet(fd, end)
      }
      this.port = namedFrom ?? this.port
    } catch (error) {
      streams.close(fd)
      await this.#forgetConnection()
      throw error
    }
    this.#endNs = 0n
    this.#isNamed = false
    this.#save('attached')
    this.#isWaiting = false
    const totals = this.totals()
    const ends = [...this.#ends.values()]
    // Duplicates before any relay owns the connection.
    const connections = ends.map((_, index) => (index === 0 ? fd : streams.duplicate(fd)))
    for (const [index, end] of ends.entries()) {
      end.isDetached = false
      end.relay?.attach(connections[index] ?? fd)
    }
    tellStreams(this.#context, totals, { action: 'attached', why: '' })
  }

  /** Stores a connection for each stream, before it is used. */
  #store(fd: Fd): void {
    for (const { stored, stream } of this.#ends.values()) {
      const name = this.#nameOf(stream)
      if (!stored.holds(name)) stored.put(name, fd)
    }
  }

  #nameOf(stream: StreamName): DescriptorName {
    return stream === 'stdin' && this.#ends.has('stdout') ? 'stdin-shared' : `${stream}-host`
  }

  async #forgetConnection(): Promise<void> {
    const names = ['stdin-host', 'stdin-shared', 'stdout-host', 'stderr-host'] as const
    await Promise.all(
      [...this.#ends.values()].map(({ stored, stream }) =>
        stored.remove(...names.filter((name) => name.startsWith(stream))),
      ),
    )
  }

  #giveUp(reason: string): void {
    tellStreams(this.#context, this.totals(), { action: 'ended', why: `no connection in time: ${reason}` })
    for (const { giveUp } of [...this.#ends.values()]) giveUp()
  }

  #save(state: StreamRecord['state']): void {
    for (const stream of this.#ends.keys()) {
      const times = { endNs: this.#endNs, heldNs: this.#heldNs }
      const isNamed = this.#isNamed
      this.#records.save({ key: this.#key, stream, port: this.port, state, isNamed, ...times })
    }
  }

  #leftMs(untilNs: bigint): number {
    return Number(untilNs - this.#context.os.clock.boottimeNs()) / 1e6
  }

  /** Looks from now on for a device, and for a caller that asks for connections. */
  #watch(): { changed(withinMs: number): Promise<void>; end(): void } {
    const done = new AbortController()
    const signal = AbortSignal.any([this.#over.signal, done.signal])
    const changed = Promise.race([this.#owner.changed(signal), this.#changes.next(signal)]).catch(() => {})
    return {
      // At most until the stream's end.
      changed: async (withinMs) => {
        const ms = Math.ceil(Math.min(withinMs, this.#leftMs(this.#endNs)))
        await Promise.race([changed, this.#context.os.clock.sleep(ms, signal).catch(() => {})])
      },
      end: () => done.abort(),
    }
  }
}

function attempt(task: () => void): void {
  try {
    task()
  } catch {
    // The relay finds it out.
  }
}

function milliseconds(ms: number): bigint {
  return BigInt(Math.ceil(ms)) * 1_000_000n
}
