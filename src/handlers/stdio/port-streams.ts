import { AgentError } from '../../base/errors.ts'
import type { Clock } from '../../os/clock.ts'
import type { Fd, RelayKeep, Streams } from '../../os/streams/streams.ts'
import type { OutputTail } from './output-replay.ts'
import { DRAIN_MS, type ProcessInput, type ProcessOutput, type StreamOs } from './process-streams.ts'
import type { StoredDescriptors } from './stored-descriptors.ts'

export interface PortStream {
  /** Undefined for a stream that had lost it when the previous agent died; `dialled` may be the next one. */
  readonly connection: Fd | undefined
  readonly dialled?: Fd | undefined
  /** 0 when it is not known. */
  readonly port: number
  readonly fd: Fd
  /** The pipe that bytes of a socket or pty pass; undefined when they come from a pipe. */
  readonly through: Fd | undefined
  readonly stored: StoredDescriptors
}

/** Input that the host sends on a connection of its own. The native relay moves the bytes. */
export class PortInput implements ProcessInput {
  readonly taken = []
  readonly #streams: Streams
  readonly #stored: StoredDescriptors
  readonly #stop = new AbortController()
  readonly #drain = new AbortController()
  #isOver = false
  /** Resolves when all its descriptors are closed, in vminit too. */
  readonly ended: Promise<void>

  /** Owns the descriptors unless it throws. `hasEnded`: the input ends with what has arrived. */
  constructor(
    os: StreamOs,
    { connection, dialled, port, fd, through, stored }: PortStream,
    { isShared, hasEnded }: { readonly isShared: boolean; readonly hasEnded: boolean },
  ) {
    const { streams } = os
    this.#streams = streams
    this.#stored = stored
    if (hasEnded) this.#drain.abort()
    const { signal } = this.#stop
    const giveUp = () => this.#stop.abort()
    const link = os.ports?.open({ stored, stream: 'stdin', port, connection, dialled, giveUp })
    const options = { signal, drain: this.#drain.signal, through, shutsDown: !isShared, link }
    try {
      this.ended = streams.relay(connection, fd, options).then(async ({ errno }) => {
        this.#isOver = true
        link?.ending(errno)
        await stored.remove('stdin', 'stdin-host', 'stdin-shared', 'stdin-pipe', 'stdin-end')
        link?.over()
      })
    } catch (error) {
      link?.abandon()
      throw error
    }
  }

  async write(): Promise<never> {
    throw new AgentError('INTERNAL', 'Cannot get writer', { fault: 'caller' })
  }

  /** Lets the relay deliver what has arrived, without waiting: the process may take any time to read it. */
  async end(): Promise<void> {
    if (this.#isOver || this.#drain.signal.aborted) return
    const mark = this.#streams.memoryFile('stdin-end')
    try {
      this.#stored.put('stdin-end', mark)
    } finally {
      this.#streams.close(mark)
    }
    this.#drain.abort()
    try {
      await this.#stored.accepted()
    } catch (error) {
      await this.#stored.remove('stdin-end')
      throw error
    }
  }

  processEnded(): void {
    this.#stop.abort()
  }

  close(): Promise<void> {
    this.#stop.abort()
    return this.ended
  }
}

/**
 * Output on a connection of its own, moved by the native relay. After the process has ended, the rest of the pipe is
 * delivered at the reader's pace; other processes that hold the pipe open have half a second.
 */
export class PortOutput implements ProcessOutput {
  readonly tail: OutputTail | undefined
  readonly taken = []
  readonly #clock: Clock
  readonly #stop = new AbortController()
  readonly #drain = new AbortController()
  readonly #over = new AbortController()
  /** Resolves when all output is written or the reader is gone, and all descriptors are closed, in vminit too. */
  readonly ended: Promise<void>

  /** Owns the descriptors unless it throws. */
  constructor(
    os: StreamOs,
    name: 'stdout' | 'stderr',
    { connection, dialled, port, fd, through, stored }: PortStream,
  ) {
    this.#clock = os.clock
    this.tail = os.replay?.open()
    const keep = keepIn(this.tail)
    const giveUp = () => this.#stop.abort()
    const link = os.ports?.open({ stored, stream: name, port, connection, dialled, giveUp })
    const options = {
      signal: this.#stop.signal,
      drain: this.#drain.signal,
      through,
      shutsDown: true,
      keep,
      link,
    }
    try {
      this.ended = os.streams.relay(fd, connection, options).then(async ({ errno }) => {
        this.#over.abort()
        link?.ending(errno)
        await stored.remove(name, `${name}-host`, `${name}-pipe`, `${name}-kept`, `${name}-sent`)
        link?.over()
      })
    } catch (error) {
      link?.abandon()
      this.tail?.close()
      throw error
    }
  }

  async read(): Promise<never> {
    throw new AgentError('INTERNAL', 'cannot get stream reader', { fault: 'caller' })
  }

  unreadMs(): number {
    return 0
  }

  processEnded(): void {
    this.#clock.sleep(DRAIN_MS, this.#over.signal).then(
      () => this.#drain.abort(),
      () => {},
    )
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.ended
    this.tail?.close()
  }
}

function keepIn(tail: OutputTail | undefined): RelayKeep | undefined {
  if (tail === undefined || tail.capacity === 0) return undefined
  return {
    bytes: tail.capacity,
    started: (read) =>
      tail.readFrom(() => {
        const { totalBytes, last } = read()
        return { totalBytes: Number(totalBytes), last }
      }),
  }
}
