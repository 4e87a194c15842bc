import { jsonLogger, type Logger, type LogSink } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import type { HostAddress } from '../../os/sockets/host-sockets.ts'
import type { Fd } from '../../os/streams/streams.ts'
import { listenForHost } from '../host-listener.ts'

/** The size of the lines that are kept for a slow or later reader. */
const MOST_BYTES = 256 * 1024

/** A reader's input is read in pieces of this size and dropped. */
const INPUT_BYTES = 4096

interface Reader {
  readonly fd: Fd
  readonly gone: AbortController
}

/** Serves the log to one reader at a time, from where the previous reader stopped. A marker counts dropped lines. */
export class LogPort {
  readonly #os: Pick<Os, 'hostSockets' | 'streams'>
  readonly #lostLine: (count: number) => string
  readonly #lines: Buffer[] = []
  #bytes = 0
  #lost = 0
  /** Bytes of the first line that the reader has. */
  #written = 0
  #reader: Reader | undefined
  #isWaiting = false
  #isOpen = false

  /** `lostLine` makes the marker of lost lines. */
  constructor(os: Pick<Os, 'hostSockets' | 'streams'>, lostLine: (count: number) => string) {
    this.#os = os
    this.#lostLine = lostLine
  }

  /** `line` ends with its newline. */
  write(line: string): void {
    this.#keep(Buffer.from(line))
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

  #keep(line: Buffer): void {
    this.#lines.push(line)
    this.#bytes += line.length
    // A partly written line is kept.
    const first = this.#written > 0 ? 1 : 0
    while (this.#bytes > MOST_BYTES && this.#lines.length > first + 1) {
      const [dropped] = this.#lines.splice(first, 1)
      this.#bytes -= dropped?.length ?? 0
      this.#lost += 1
    }
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

  /** The next reader gets a partly written line again as a whole. */
  #end(reader: Reader): void {
    if (this.#reader !== reader) return
    this.#reader = undefined
    this.#written = 0
    reader.gone.abort()
    this.#os.streams.close(reader.fd)
  }

  #flush(): void {
    const reader = this.#reader
    if (reader === undefined || this.#isWaiting) return
    try {
      for (let line = this.#next(); line !== undefined; line = this.#next()) {
        const written = this.#os.streams.tryWrite(reader.fd, line.subarray(this.#written))
        if (written === 0) return void this.#wait(reader)
        this.#written += written
        if (this.#written < line.length) continue
        this.#lines.shift()
        this.#bytes -= line.length
        this.#written = 0
      }
    } catch {
      this.#end(reader)
    }
  }

  /** Puts the marker where lines were lost. */
  #next(): Buffer | undefined {
    if (this.#lost > 0 && this.#written === 0) {
      const marker = Buffer.from(this.#lostLine(this.#lost))
      this.#lost = 0
      this.#lines.unshift(marker)
      this.#bytes += marker.length
    }
    return this.#lines[0]
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
