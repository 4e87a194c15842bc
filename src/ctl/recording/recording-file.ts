import { appendFileSync, statSync, writeFileSync } from 'node:fs'
import { fileFailure } from '../../client/files/file-failure.ts'
import { UsageError } from '../command.ts'
import { type RecordedLine, readRecording } from './recording.ts'

/** Readable by its owner only, because requests hold environments. */
export interface RecordingFile {
  readonly write: (line: string) => void
  /** The time of the last line; 0 in a new recording. */
  readonly endMs: number
  /** The highest connection number. */
  readonly connections: number
}

export function newRecording(path: string): RecordingFile {
  guarded(path, () => writeFileSync(path, '', { mode: 0o600 }))
  return { write: writerOf(path), endMs: 0, connections: 0 }
}

/** Continues a recording, or begins one. Throws {@link UsageError} for a file with anything else. */
export function continuedRecording(path: string): RecordingFile {
  return guarded(path, () => {
    appendFileSync(path, '', { mode: 0o600 })
    // A pipe has no earlier lines.
    const lines = statSync(path).isFile() ? readRecording(path).lines : []
    return {
      write: writerOf(path),
      endMs: Math.ceil(Math.max(0, ...lines.flatMap(timesOf))),
      connections: Math.max(0, ...lines.map((line) => (line.kind === 'cut' ? 0 : line.connection))),
    }
  })
}

function timesOf(line: RecordedLine): readonly number[] {
  if (line.kind === 'cut') return []
  return line.kind === 'call' && line.answer !== undefined ? [line.sentMs, line.answer.atMs] : [line.sentMs]
}

function writerOf(path: string): (line: string) => void {
  return (line) => guarded(path, () => appendFileSync(path, line))
}

function guarded<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw new UsageError(`recording: ${fileFailure(path, error)}`, { cause: error })
  }
}
