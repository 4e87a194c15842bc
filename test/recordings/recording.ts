import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type RecordedLine, type Recording, readRecording } from '../../src/ctl/recording/recording.ts'

const RECORDINGS = join(import.meta.dirname, '../fixtures/recordings')

/** All recordings, `CALLER.WHAT.jsonl`, in the order of their names. */
export function allRecordings(): Recording[] {
  const names = readdirSync(RECORDINGS).filter((name) => /^[^.]+\.[^.]+\.jsonl$/.test(name))
  return names.toSorted().map((name) => readRecording(join(RECORDINGS, name)))
}

export function recordingNamed(name: string): Recording {
  return readRecording(recordingPath(name))
}

export function recordingPath(name: string): string {
  return join(RECORDINGS, `${name}.jsonl`)
}

/** Extends the time limits of the calls, because deaths of the agent take time. */
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
