import type { RecordedCall, RecordedLine, Recording } from '../../src/ctl/recording/recording.ts'
import { notesOf } from './notes.ts'

/**
 * The text of a recording for `agent-ctl replay`, with the notes merged into the lines. A stream whose text depends on time
 * is cut and not compared.
 */
export function recordingText(recording: Recording): string {
  const notes = notesOf(recording)
  let sentMs = 0
  const lines = recording.lines.flatMap((line): readonly object[] => {
    if (line.kind === 'cut') {
      const calls = notes.leftOut(line).map((call) => callFields({ ...call, sentMs }))
      return [...calls, { cut: line.calls }]
    }
    sentMs = line.sentMs
    if (line.kind !== 'call') return [{ ms: sentMs, conn: line.connection, event: line.kind }]
    return [callFields(answeredHere(line)), ...(notes.texts[line.line] === undefined ? [] : [{ cut: 1 }])]
  })
  return lines.map((fields) => `${JSON.stringify(fields)}\n`).join('')

  function answeredHere(call: RecordedCall): RecordedCall {
    const { answer } = call
    const instead = answer && notes.differenceAt(call)?.instead(answer)
    return instead === undefined ? call : { ...call, answer: { ...instead, atMs: answer?.atMs ?? 0 } }
  }
}

function callFields(call: Extract<RecordedLine, { kind: 'call' }>): object {
  const {
    answer,
    connection,
    metadata,
    method,
    request,
    requestBytes,
    sentMs,
    service,
    stream,
    timeoutNano,
  } = call
  return {
    ms: sentMs,
    conn: connection,
    stream,
    method: `${service}/${method}`,
    timeout_ms: Number(timeoutNano) / 1e6,
    metadata,
    request,
    request_bytes: requestBytes?.toString('base64'),
    ...(answer && { answered_ms: answer.atMs, code: answer.code, message: answer.message }),
    ...(answer?.response && { response: answer.response }),
  }
}
