import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type RecordedLine, type Recording, readRecording } from '../../src/ctl/recording/recording.ts'

/** The folder with all recordings (its README tells where they come from). */
const RECORDINGS = join(import.meta.dirname, '../fixtures/recordings')

/** All recordings, `CALLER.WHAT.jsonl`, in the order of their names. */
export function allRecordings(): Recording[] {
  const names = readdirSync(RECORDINGS).filter((name) => /^[^.]+\.[^.]+\.jsonl$/.test(name))
  return names.toSorted().map((name) => readRecording(join(RECORDINGS, name)))
}

/** Reads the recording with this name. */
export function recordingNamed(name: string): Recording {
  return readRecording(recordingPath(name))
}

/** The file of the recording with this name. */
export function recordingPath(name: string): string {
  return join(RECORDINGS, `${name}.jsonl`)
}

/** Gives the calls that are to be answered in time more of it: deaths take some of it, on a busy machine most. */
export function withMoreTime({ name, lines }: Recording): Recording {
  const inTime = (line: RecordedLine) =>
    line.kind === 'call' && line.timeoutNano > 0n && line.answer?.code !== DEADLINE_EXCEEDED
  return {
    name,
    lines: lines.map((line) => (inTime(line) ? { ...line, timeoutNano: MUCH_TIME_NANO } : line)),
  }
}

const DEADLINE_EXCEEDED = 4
const MUCH_TIME_NANO = 240_000_000_000n
