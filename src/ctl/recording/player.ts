import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { checkAnswer } from './compare.ts'
import type { RecordingNotes } from './notes.ts'
import { OutputStream } from './output-stream.ts'
import type { ConnectionEvent, RecordedCall, RecordedLine, Recording } from './recording.ts'
import { type Answer, type RecordedWire, recordedWire } from './wire.ts'

/** The agent that a recording is played on. */
export interface Place {
  /** Dials the agent. */
  dial(): Promise<Duplex>
  /** Does what the caller's host had done before a call: the files of a container, a disk that it had plugged in. */
  prepare(call: RecordedCall): Promise<void>
  /** Takes note of an answer that differs, in place of the end of the replay. */
  differs?(line: RecordedLine, error: Error): void
}

/** A call whose answer has not been checked yet. */
interface OpenCall {
  readonly call: RecordedCall
  readonly answered: Promise<Answer>
}

/** Longer than any call takes under emulation. The limit only ends a replay that hangs, and names the line. */
const LIMIT_MS = 120_000

/**
 * Plays a recording and returns how many calls it made. Throws at the first answer that differs from what the recording
 * and its notes tell, naming the line, unless `place` takes note of it.
 *
 * The order is that of the recording, without its pauses: before a call is sent, every call has been answered whose
 * answer came before it then. All others are still open, so they run at the same time. A shim reads each stream in a
 * loop, and how much one read returns is chance, so a stream is read to its end and compared as a whole.
 * `until` names a method; the first call of it and all that follows are left out.
 */
export async function play(
  recording: Recording,
  notes: RecordingNotes,
  place: Place,
  until?: string,
): Promise<number> {
  const player = new Player(recording, notes, place)
  try {
    return await player.play(until)
  } finally {
    player.close()
  }
}

class Player {
  readonly #recording: Recording
  readonly #notes: RecordingNotes
  readonly #place: Place
  readonly #wires = new Map<number, RecordedWire>()
  readonly #streams: readonly OutputStream[]
  #open: readonly OpenCall[] = []
  #sent = 0

  constructor(recording: Recording, notes: RecordingNotes, place: Place) {
    this.#recording = recording
    this.#notes = notes
    this.#place = place
    this.#streams = this.#notes.readsInLoops ? OutputStream.allOf(recording, this.#notes) : []
  }

  async play(until: string | undefined): Promise<number> {
    const { lines } = this.#recording
    const end = lines.find((line) => line.kind === 'call' && line.method === until)
    for (const line of lines) {
      if (line === end) break
      await this.#at(line, this.#playLine(line))
    }
    await this.#catchUp(end?.kind === 'call' ? end.sentMs : Number.POSITIVE_INFINITY)
    for (const stream of this.#streams) await this.#check(stream.firstRead, () => stream.finish())
    return this.#sent
  }

  close(): void {
    for (const wire of this.#wires.values()) wire.close()
  }

  async #playLine(line: RecordedLine): Promise<void> {
    if (line.kind === 'cut') {
      for (const call of this.#notes.leftOut(line)) this.#send(call)
      return
    }
    await this.#catchUp(line.sentMs)
    if (line.kind !== 'call') await this.#connect(line)
    else if (this.#streams.some((stream) => stream.isRead(line))) this.#read(line)
    else {
      await this.#place.prepare(line)
      this.#send(line)
    }
  }

  async #connect(event: ConnectionEvent): Promise<void> {
    if (event.kind === 'close') this.#wireOf(event).close()
    else this.#wires.set(event.connection, recordedWire(await this.#place.dial()))
  }

  /** Waits for all that had been answered at this time of the recording. */
  async #catchUp(ms: number): Promise<void> {
    const due = this.#open.filter(({ call }) => call.answer !== undefined && call.answer.atMs <= ms)
    this.#open = this.#open.filter((open) => !due.includes(open))
    for (const { call, answered } of due) {
      const answer = await this.#at(call, answered)
      await this.#check(call, async () => checkAnswer(call, answer, this.#notes))
    }
    for (const stream of this.#streams) await this.#check(stream.firstRead, () => stream.catchUp(ms))
  }

  #send(call: RecordedCall): void {
    const answered = this.#wireOf(call).send(call)
    // A call that fails is reported when its turn comes.
    answered.catch(() => {})
    this.#open = [...this.#open, { call, answered }]
    this.#sent += 1
  }

  #read(call: RecordedCall): void {
    const stream = this.#streams.find(({ firstRead }) => firstRead === call)
    const wire = this.#wireOf(call)
    stream?.readToEnd(() => {
      this.#sent += 1
      return wire.send(call)
    })
  }

  #wireOf({ connection }: { readonly connection: number }): RecordedWire {
    const wire = this.#wires.get(connection)
    if (wire === undefined) throw new Error(`conn ${connection}: not open`)
    return wire
  }

  /** Compares; a difference ends the replay unless the place takes note of it. */
  async #check(line: RecordedLine, compare: () => Promise<void>): Promise<void> {
    try {
      await this.#at(line, compare())
    } catch (error) {
      if (this.#place.differs === undefined || !(error instanceof Error)) throw error
      this.#place.differs(line, error)
    }
  }

  /** Limits a step, and names the line in its error. */
  async #at<T>(line: RecordedLine, step: Promise<T>): Promise<T> {
    try {
      return await abortable(step, AbortSignal.timeout(LIMIT_MS))
    } catch (error) {
      if (error instanceof ReplayError) throw error
      const what = line.kind === 'call' ? line.method : line.kind
      throw new ReplayError(`${this.#recording.name}, line ${line.line}, ${what}: ${messageOf(error)}`, {
        cause: error,
      })
    }
  }
}

/** An error that names its line already. */
class ReplayError extends Error {}
