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

/** How long to wait after an overflow for the records that vminit still holds. */
const GRACE_MS = 1000
const READ_BYTES = 1024 * RECORD_BYTES

/** The agent's end of the socket to vminit, which sends exits and shutdown requests and takes commands. */
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

  /** `fd` is the inherited socket, already non-blocking. The caller calls {@link receive} once. */
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
      hasEnded: (pid) => watch.hasEnded(pid),
      close: () => watch.close(),
    }
  }

  powerOff(): Promise<void> {
    return this.#send(encodeCommand(RecordKind.POWER_OFF, 0))
  }

  exitWith(status: number): Promise<void> {
    return this.#send(encodeCommand(RecordKind.EXIT_WITH, status))
  }

  endWithAgent(): Promise<void> {
    return this.#send(encodeCommand(RecordKind.END_WITH_AGENT, 0))
  }

  /** Receives records until vminit is gone, then rejects all waits for exits. Never rejects itself. */
  async receive(): Promise<void> {
    try {
      await this.#receiveRecords()
      this.#end('vminit is gone')
    } catch (error) {
      this.#end(`channel to vminit: ${messageOf(error)}`)
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
        this.#log.warn('record of vminit ignored', { kind: record?.kind ?? 'another version' })
    }
  }

  #overflowed(record: ChannelRecord): void {
    this.#log.critical('vminit lost exit records', { lost: record.sequence })
    this.#overflowAtNs = this.#clock.boottimeNs()
    this.#answerLost()
  }

  /** Finds waits for processes that are gone, gives their records time to arrive, then answers the waits without. */
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
      this.#log.error('cannot check for processes whose exit was lost', { error: messageOf(error) }),
    )
  }

  #end(reason: string): void {
    this.#log.critical('channel to vminit ended', { reason })
    this.#gone = new AgentError('FAILED_PRECONDITION', reason)
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

/** Whether the process that had `pid` at `atNs` is gone. A zombie is not gone, because its record is still to come. */
async function isGone(pid: number, atNs: bigint): Promise<boolean> {
  const startNs = await processStartNs(pid)
  return startNs === undefined || startNs > atNs
}
