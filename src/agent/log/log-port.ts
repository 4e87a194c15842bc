import { jsonLogger, type Logger, type LogSink } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import type { HostAddress } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { listenForHost } from '../host-listener.ts'
import type { KeptLines } from './kept-lines.ts'

/** A reader's input is read in pieces of this size and dropped. */
const INPUT_BYTES = 4096

interface Reader {
  readonly fd: Fd
  readonly gone: AbortController
}

/** Serves the log to one reader at a time, from where the previous reader stopped. A marker counts dropped lines. */
export class LogPort {
  readonly #os: Pick<Os, 'hostSockets' | 'streams'>
  readonly #lines: KeptLines
  #reader: Reader | undefined
  #isWaiting = false
  #isOpen = false

  constructor(os: Pick<Os, 'hostSockets' | 'streams'>, lines: KeptLines) {
    this.#os = os
    this.#lines = lines
  }

  /** `line` ends with its newline. */
  write(line: string): void {
    this.#lines.add(line)
    this.#flush()
  }

  /** A port that cannot be opened is logged. */
  async listen(log: Logger, address: HostAddress, allowLoopback: boolean): Promise<void> {
    const connection = (fd: Fd, peer: string) => {
      if (this.#reader === undefined) return this.#serve(fd)
      this.#os.streams.close(fd)
      log.debug('connection refused: the log has a reader', { peer })
    }
    const name = 'log-listener'
    const stop = await listenForHost({ os: this.#os, log, allowLoopback }, { name, address, connection })
    if (stop === undefined) return
    log.info('log continues at its port')
    this.#isOpen = true
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  #serve(fd: Fd): void {
    const reader = { fd, gone: new AbortController() }
    this.#reader = reader
    void this.#watch(reader)
    this.#flush()
  }

  async #watch(reader: Reader): Promise<void> {
    const { streams } = this.#os
    try {
      for (;;) {
        await streams.readable(reader.fd, reader.gone.signal)
        if (streams.tryRead(reader.fd, INPUT_BYTES)?.length === 0) break
      }
    } catch {
      // The reader is gone, or its connection has failed.
    }
    this.#end(reader)
  }

  #end(reader: Reader): void {
    if (this.#reader !== reader) return
    this.#reader = undefined
    this.#lines.forgetReader()
    reader.gone.abort()
    this.#os.streams.close(reader.fd)
  }

  #flush(): void {
    const reader = this.#reader
    if (reader === undefined || this.#isWaiting) return
    try {
      const isWritten = this.#lines.writeTo((bytes) => this.#os.streams.tryWrite(reader.fd, bytes))
      if (!isWritten) void this.#wait(reader)
    } catch {
      this.#end(reader)
    }
  }

  async #wait(reader: Reader): Promise<void> {
    this.#isWaiting = true
    try {
      await this.#os.streams.writable(reader.fd, reader.gone.signal)
    } catch {
      this.#end(reader)
    }
    this.#isWaiting = false
    this.#flush()
  }
}

/** Lines go to the port, and to the console until the port is open. Critical lines go to both. */
export function sinkOf(port: LogPort, output: (text: string) => void): LogSink {
  return (line, level) => {
    port.write(line)
    if (!port.isOpen || level === 'critical') output(line)
  }
}

export function lostLines(identity: {
  readonly version: string
  readonly pid: number
}): (count: number) => string {
  let line = ''
  const sink = (text: string) => {
    line = text
  }
  const log = jsonLogger({ ...identity, sink, level: () => 'warn' })
  return (count) => {
    log.warn('log lines lost', { count })
    return line
  }
}
