import type { Cut, RecordedAnswer, RecordedCall } from './recording.ts'

export interface Difference {
  readonly because: string
  /** Returns the answer to expect. */
  readonly instead: (recorded: RecordedAnswer) => Omit<RecordedAnswer, 'atMs'>
}

export interface RecordingNotes {
  /** Kata's agent must agree in everything but ids, times and sizes, this agent in what callers rely on. */
  readonly answeredBy: 'the reference' | 'this agent'
  /** A shim reads each stream to its end, kata-agent-ctl once at each command. */
  readonly readsInLoops: boolean
  /** The texts of streams that vary, by the line of the first read. */
  readonly texts: Readonly<Record<number, RegExp>>
  /** Matches streams whose text is unknown; without it such a stream is an error. */
  readonly unknownText?: RegExp
  /** The calls of a cut that must be made. */
  leftOut(cut: Cut): readonly RecordedCall[]
  differenceAt(call: RecordedCall): Difference | undefined
}
