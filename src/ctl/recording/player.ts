import type { Duplex } from 'node:stream'
import { abortable } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import { checkAnswer } from './compare.ts'
import type { RecordingNotes } from './notes.ts'
import { OutputStream } from './output-stream.ts'
import type { ConnectionEvent, RecordedCall, RecordedLine, Recording } from './recording.ts'
import { type Answer, type RecordedWire, recordedWire } from './wire.ts'

export interface Place {
  dial(): Promise<Duplex>
  /** Does what the caller's host did before a call: a container's files, a hot-plugged disk. */
  prepare(call: RecordedCall): Promise<void>
  /** Receives each difference; without it the first difference ends the replay. */
  differs?(line: RecordedLine, error: Error): void
}

interface OpenCall {
  readonly call: RecordedCall
  readonly answered: Promise<Answer>
}

/** Longer than any call under emulation: the limit only ends a replay that hangs. */
const LIMIT_MS = 120_000

/**
 * Plays a recording up to the first call of `until`, and returns the number of calls. Throws at the first difference,
 * naming the line, unless `place.differs` takes it.
 * Calls keep their order, without pauses: a call is sent once all calls are answered that were answered by then. The
 * other calls overlap. A stream is read to its end and compared whole, because the size of a read is chance.
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

  /** Waits for everything that was answered by this time of the recording. */
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
    // `#catchUp` reports a call that fails.
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

  async #check(line: RecordedLine, compare: () => Promise<void>): Promise<void> {
    try {
      await this.#at(line, compare())
    } catch (error) {
      if (this.#place.differs === undefined || !(error instanceof Error)) throw error
      this.#place.differs(line, error)
    }
  }

  /** Limits a step, and adds the line to its error. */
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

class ReplayError extends Error {}
