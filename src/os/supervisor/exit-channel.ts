import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import { processStartNs } from '../process/proc-stat.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import {
  type ChannelRecord,
  decodeRecord,
  decodeWaitStatus,
  encodeCommand,
  RECORD_BYTES,
  RecordKind,
} from './channel-record.ts'
import { ExitLedger } from './exit-ledger.ts'
import type { ExitRecord, Exits, ExitWatch, Supervisor } from './supervisor.ts'

/** How long after an overflow the records that vminit still holds may take to arrive. */
const GRACE_MS = 1000
const READ_BYTES = 1024 * RECORD_BYTES

/** The agent's end of the socket to vminit: exits and shutdown come in, commands go out. */
export class ExitChannel implements Exits, Supervisor {
  readonly shutdownRequested: Promise<number>
  readonly #fd: Fd
  readonly #streams: Streams
  readonly #clock: Clock
  readonly #log: Logger
  readonly #ledger: ExitLedger
  readonly #shutdown = Promise.withResolvers<number>()
  #overflowAtNs = -1n
  #gone: AgentError | undefined

  /** `fd` is the inherited socket, already non-blocking. {@link receive} has to be called once. */
  constructor(parts: {
    readonly fd: Fd
    readonly streams: Streams
    readonly clock: Clock
    readonly log: Logger
  }) {
    this.#fd = parts.fd
    this.#streams = parts.streams
    this.#clock = parts.clock
    this.#log = parts.log
    this.#ledger = new ExitLedger(() => parts.clock.boottimeNs())
    this.shutdownRequested = this.#shutdown.promise
  }

  get unavailable(): string | undefined {
    return this.#gone?.message
  }

  watch(): ExitWatch {
    const beganNs = this.#clock.boottimeNs()
    const watch = this.#ledger.watch()
    return {
      exitOf: (pid) => {
        const exit = watch.exitOf(pid)
        if (this.#overflowAtNs >= beganNs) this.#answerLost()
        return exit
      },
      close: () => watch.close(),
    }
  }

  powerOff(): Promise<void> {
    return this.#send(encodeCommand(RecordKind.POWER_OFF, 0))
  }

  exitWith(status: number): Promise<void> {
    return this.#send(encodeCommand(RecordKind.EXIT_WITH, status))
  }

  /** Takes in records until vminit is gone, and then fails everything that waits for one. */
  async receive(): Promise<void> {
    try {
      await this.#receiveRecords()
      this.#end('vminit is gone')
    } catch (error) {
      this.#end(`the channel to vminit failed: ${messageOf(error)}`)
    }
  }

  async #receiveRecords(): Promise<void> {
    let unread = Buffer.alloc(0)
    for (;;) {
      const chunk = this.#streams.tryRead(this.#fd, READ_BYTES)
      if (chunk === undefined) {
        await this.#streams.readable(this.#fd)
        continue
      }
      if (chunk.length === 0) return
      unread = Buffer.concat([unread, chunk])
      const whole = unread.length - (unread.length % RECORD_BYTES)
      for (let at = 0; at < whole; at += RECORD_BYTES) this.#accept(unread.subarray(at, at + RECORD_BYTES))
      unread = unread.subarray(whole)
    }
  }

  #accept(bytes: Buffer): void {
    const record = decodeRecord(bytes)
    switch (record?.kind) {
      case RecordKind.EXIT:
        this.#ledger.record(exitRecord(record))
        break
      case RecordKind.OVERFLOW:
        this.#overflowed(record)
        break
      case RecordKind.SHUTDOWN:
        this.#shutdown.resolve(record.status)
        break
      default:
        this.#log.warn('ignored a record of vminit', { kind: record?.kind ?? 'another version' })
    }
  }

  #overflowed(record: ChannelRecord): void {
    this.#log.critical('vminit lost exit records', { lost: record.sequence })
    this.#overflowAtNs = this.#clock.boottimeNs()
    this.#answerLost()
  }

  /** Looks who waits for a process that is no more, gives its record time to arrive, then answers without. */
  #answerLost(): void {
    const answer = async () => {
      const waits = this.#ledger.waitedFor()
      const gone = await Promise.all(waits.map(({ pid, askedAtNs }) => isGone(pid, askedAtNs)))
      const suspects = waits.filter((_, index) => gone[index])
      if (suspects.length === 0) return
      await this.#clock.sleep(GRACE_MS)
      for (const { pid, askedAtNs } of suspects) this.#ledger.lost(pid, askedAtNs)
    }
    answer().catch((error) =>
      this.#log.error('could not look for processes whose exit was lost', { error: messageOf(error) }),
    )
  }

  #end(sentence: string): void {
    this.#log.critical('the channel to vminit ended', { reason: sentence })
    this.#gone = new AgentError('FAILED_PRECONDITION', sentence)
    this.#ledger.fail(this.#gone)
    this.#shutdown.resolve(0)
    this.#streams.close(this.#fd)
  }

  async #send(command: Buffer): Promise<void> {
    let unsent = command
    while (unsent.length > 0) {
      if (this.#gone !== undefined) throw this.#gone
      unsent = unsent.subarray(this.#streams.tryWrite(this.#fd, unsent))
      if (unsent.length > 0) await this.#streams.writable(this.#fd)
    }
  }
}

function exitRecord(record: ChannelRecord): ExitRecord {
  return {
    pid: record.pid,
    ...decodeWaitStatus(record.status),
    reapedAtNs: record.boottimeNs,
    userTimeUs: record.userTimeUs,
    systemTimeUs: record.systemTimeUs,
    maxRssKib: record.maxRssKib,
  }
}

/** Whether the process that had `pid` at that moment is gone; a zombie is not, for its record is yet to come. */
async function isGone(pid: number, atNs: bigint): Promise<boolean> {
  const startNs = await processStartNs(pid)
  return startNs === undefined || startNs > atNs
}
