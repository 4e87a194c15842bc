import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Clock } from '../clock.ts'
import type { Files } from '../files/files.ts'
import { parseStartNs, processStartNs } from '../process/proc-stat.ts'
import type { Fd, Streams } from '../streams/streams.ts'
import {
  type ChannelRecord,
  decodeRecord,
  decodeWaitStatus,
  encodeCommand,
  RECORD_BYTES,
  RecordKind,
} from './channel-record.ts'
import type { ChannelWriter } from './channel-writer.ts'
import type { VminitStore } from './descriptor-store.ts'
import { ExitLedger } from './exit-ledger.ts'
import type { VminitFreezer } from './freezer.ts'
import type { ExitRecord, Exits, ExitWatch, Supervisor } from './supervisor.ts'

/** Time after an overflow for the records that vminit still holds. */
const GRACE_MS = 1000
const READ_BYTES = 1024 * RECORD_BYTES

/** Exits are acknowledged in batches. vminit sends the others to the next agent, which may adopt them. */
const ACKNOWLEDGED_AT_ONCE = 64
/** vminit never holds more unacknowledged exits. */
const MAX_UNACKNOWLEDGED = 8192

/** The watch for exits from before this agent keeps them all. */
const ANY_TIME_NS = 0n

interface Parts {
  readonly fd: Fd
  readonly streams: Streams
  readonly files: Files
  readonly writer: ChannelWriter
  readonly descriptors: Pick<VminitStore, 'answered' | 'fail'>
  readonly freezer: Pick<VminitFreezer, 'answered' | 'thawed' | 'fail'>
  readonly clock: Clock
  readonly log: Logger
}

/** The agent's end of the socket to vminit, which sends exits and shutdown requests and takes commands. */
export class ExitChannel implements Exits, Supervisor {
  readonly shutdownRequested: Promise<number>
  readonly #parts: Parts
  readonly #ledger: ExitLedger
  readonly #shutdown = Promise.withResolvers<number>()
  /** Exits may be adopted until the gate opens. */
  readonly #adoption: ExitWatch
  readonly #backlogEnded = Promise.withResolvers<void>()
  /** Pids that were kept or adopted. */
  readonly #kept = new Set<number>()
  /** Pids with an exit that the previous agent kept; undefined once the gate is open. */
  #unclaimed: Set<number> | undefined = new Set<number>()
  /** Numbered exits, in the order of their numbers and times. */
  readonly #unacknowledged: ChannelRecord[] = []
  /** The begin of an incomplete record. */
  #unread: Buffer = Buffer.alloc(0)
  #overflowAtNs = -1n
  #gone: AgentError | undefined

  /** `fd` is the inherited socket, already non-blocking. The caller calls {@link receive} once. */
  constructor(parts: Parts) {
    this.#parts = parts
    this.#ledger = new ExitLedger(() => parts.clock.boottimeNs())
    this.#adoption = this.#ledger.watch(ANY_TIME_NS)
    this.shutdownRequested = this.#shutdown.promise
  }

  watch(): ExitWatch {
    const beganNs = this.#parts.clock.boottimeNs()
    const watch = this.#ledger.watch()
    return {
      exitOf: (pid) => {
        const exit = watch.exitOf(pid)
        if (this.#overflowAtNs >= beganNs) this.#answerLost(this.#ledger.waitedFor())
        return exit
      },
      hasEnded: (pid) => watch.hasEnded(pid),
      close: () => {
        watch.close()
        this.#acknowledge()
      },
    }
  }

  keep(pid: number): void {
    this.#kept.add(pid)
    this.#parts.writer.post(encodeCommand(RecordKind.KEEP_EXIT, { pid }))
  }

  forget(pid: number): void {
    this.#kept.delete(pid)
    this.#parts.writer.post(encodeCommand(RecordKind.FORGET_EXIT, { pid }))
  }

  adopt(pid: number, startNs: bigint): Promise<ExitRecord> {
    // Register the pid again: the previous agent may have died before it knew it.
    this.keep(pid)
    const exit = this.#ledger.exitOfProcess(pid, startNs)
    // Until the end of the backlog, the record may arrive.
    void this.#backlogEnded.promise.then(() => this.#answerLost([{ pid, askedAtNs: startNs }]))
    return exit
  }

  powerOff(): Promise<void> {
    return this.#parts.writer.send(encodeCommand(RecordKind.POWER_OFF))
  }

  endWithAgent(): Promise<void> {
    return this.#parts.writer.send(encodeCommand(RecordKind.END_WITH_AGENT))
  }

  gateOpened(): void {
    this.#parts.writer.post(encodeCommand(RecordKind.GATE_OPENED))
    for (const pid of this.#unclaimed ?? []) if (!this.#kept.has(pid)) this.forget(pid)
    this.#unclaimed = undefined
    this.#adoption.close()
    this.#acknowledge()
  }

  checkBroker(): void {
    this.#parts.writer.post(encodeCommand(RecordKind.CHECK_BROKER))
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
    while (this.#readAvailable()) await this.#parts.streams.readable(this.#parts.fd)
  }

  #readAvailable(): boolean {
    for (;;) {
      const chunk = this.#parts.streams.tryRead(this.#parts.fd, READ_BYTES)
      if (chunk === undefined) return true
      if (chunk.length === 0) return false
      const unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk])
      const whole = unread.length - (unread.length % RECORD_BYTES)
      this.#unread = unread.subarray(whole)
      for (let at = 0; at < whole; at += RECORD_BYTES) this.#accept(unread.subarray(at, at + RECORD_BYTES))
      this.#acknowledge()
      if (chunk.length < READ_BYTES) return true
    }
  }

  #accept(bytes: Buffer): void {
    const record = decodeRecord(bytes)
    switch (record?.kind) {
      case RecordKind.EXIT:
        this.#exited(record)
        break
      case RecordKind.OVERFLOW:
        this.#overflowed(record)
        break
      case RecordKind.SHUTDOWN:
        this.#shutdown.resolve(record.status)
        break
      case RecordKind.STORE_RESULT:
        this.#parts.descriptors.answered(bytes)
        break
      case RecordKind.FREEZE_RESULT:
        this.#parts.freezer.answered(bytes)
        break
      case RecordKind.THAWED:
        this.#parts.freezer.thawed(bytes)
        break
      case RecordKind.BACKLOG_END:
        this.#backlogEnded.resolve()
        break
      default:
        this.#parts.log.warn('record of vminit ignored', { kind: record?.kind ?? 'another version' })
    }
  }

  #exited(record: ChannelRecord): void {
    this.#ledger.record(exitRecord(record))
    if (record.sequence > 0n) {
      this.#unacknowledged.push(record)
      if (this.#unacknowledged.length > MAX_UNACKNOWLEDGED) this.#unacknowledged.shift()
    } else if (!this.#kept.has(record.pid)) {
      // The previous agent kept it. Nothing can adopt it once the gate is open.
      if (this.#unclaimed === undefined) this.forget(record.pid)
      else this.#unclaimed.add(record.pid)
    }
  }

  /** Acknowledges exits that no open watch can ask for, if there are enough for a message. */
  #acknowledge(): void {
    const neededSinceNs = this.#ledger.neededSinceNs
    const needed = this.#unacknowledged.findIndex(
      ({ boottimeNs }) => neededSinceNs !== undefined && neededSinceNs <= boottimeNs,
    )
    const count = needed < 0 ? this.#unacknowledged.length : needed
    if (count < ACKNOWLEDGED_AT_ONCE) return
    const last = this.#unacknowledged.splice(0, count).at(-1)
    this.#parts.writer.post(encodeCommand(RecordKind.ACK_EXITS, { sequence: last?.sequence ?? 0n }))
  }

  #overflowed(record: ChannelRecord): void {
    this.#parts.log.critical('vminit lost exit records', { lost: record.sequence })
    this.#overflowAtNs = this.#parts.clock.boottimeNs()
    this.#answerLost(this.#ledger.waitedFor())
  }

  /** Answers waits whose process is gone as lost, unless the record arrives within GRACE_MS. */
  #answerLost(waits: ReturnType<ExitLedger['waitedFor']>): void {
    const answer = async () => {
      const gone = await Promise.all(
        waits.map(({ pid, askedAtNs }) => isGone(this.#parts.files, pid, askedAtNs)),
      )
      const suspects = waits.filter((_, index) => gone[index])
      if (suspects.length === 0) return
      await this.#parts.clock.sleep(GRACE_MS)
      if (this.#gone === undefined) this.#readAvailable()
      for (const { pid, askedAtNs } of suspects) this.#ledger.lost(pid, askedAtNs)
    }
    answer().catch((error) =>
      this.#parts.log.error('processes without an exit record not checked', { error: messageOf(error) }),
    )
  }

  #end(reason: string): void {
    this.#parts.log.critical('channel to vminit ended', { reason })
    this.#gone = new AgentError('FAILED_PRECONDITION', reason)
    this.#ledger.fail(this.#gone)
    this.#parts.descriptors.fail(this.#gone)
    this.#parts.freezer.fail(this.#gone)
    this.#parts.writer.fail(this.#gone)
    this.#shutdown.resolve(0)
    this.#parts.streams.close(this.#parts.fd)
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

/** Whether the process with `pid` at `atNs` is gone. A zombie is not, because its record is still to come. */
async function isGone(files: Files, pid: number, atNs: bigint): Promise<boolean> {
  const [stat = ''] = await files.readSmall([`/proc/${pid}/stat`])
  // Without a text, only the error says whether the process is gone.
  const startNs = stat === '' ? await processStartNs(files, pid) : parseStartNs(stat)
  return startNs === undefined || startNs > atNs
}
