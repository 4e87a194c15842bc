import type { Cut, RecordedAnswer, RecordedCall } from './recording.ts'

/** An answer that differs from the recorded one, and why. */
export interface Difference {
  readonly because: string
  /** Returns what takes the place of the recorded answer. */
  readonly instead: (recorded: RecordedAnswer) => Omit<RecordedAnswer, 'atMs'>
}

/** What a replay knows about a recording besides its lines. */
export interface RecordingNotes {
  /** Of another agent everything is compared but ids, times and sizes; of this agent what callers rely on. */
  readonly answeredBy: 'the reference' | 'this agent'
  /** A shim reads each stream until its end. agent-ctl reads once at each command. */
  readonly readsInLoops: boolean
  /** What a stream brings when it is not what was recorded, by the line of the stream's first read. */
  readonly texts: Readonly<Record<number, RegExp>>
  /** What a stream may bring whose text is not known; without it such a stream is an error. */
  readonly unknownText?: RegExp
  /** The calls that a cut left out and that must be made. */
  leftOut(cut: Cut): readonly RecordedCall[]
  differenceAt(call: RecordedCall): Difference | undefined
}
