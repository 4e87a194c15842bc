import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseLines, type RecordedCall, readRecording } from '../../src/ctl/recording/recording.ts'
import { decodedRequest } from '../../src/ctl/recording/wire.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { allRecordings } from './recording.ts'

const CALL = {
  ms: 7,
  conn: 1,
  stream: 3,
  method: 'grpc.Health/Check',
  timeout_ms: 29999.787224,
  metadata: { 'containerd-namespace-ttrpc': 'default' },
  request: { service: '' },
  request_bytes: '',
  answered_ms: 9,
  code: 0,
  response: { status: 1 },
}

describe('a recording', () => {
  const folder = temporaryFolder()

  it('is read line by line', () => {
    const lines = [{ ms: 2, conn: 1, event: 'open' }, CALL, { cut: 3, of: 'ReadStdout' }]
    const path = join(folder, 'shim.run.jsonl')
    writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
    expect(readRecording(path)).toEqual({
      name: 'shim.run',
      lines: [
        { kind: 'open', line: 1, sentMs: 2, connection: 1 },
        {
          kind: 'call',
          line: 2,
          sentMs: 7,
          connection: 1,
          stream: 3,
          service: 'grpc.Health',
          method: 'Check',
          timeoutNano: 29_999_787_224n,
          metadata: CALL.metadata,
          request: { service: '' },
          requestBytes: Buffer.alloc(0),
          answer: { atMs: 9, code: 0, message: '', response: { status: 1 } },
        },
        { kind: 'cut', line: 3, calls: 3 },
      ],
    })
  })

  it('that is cut off in a line is refused, naming the file and the line', () => {
    const whole = JSON.stringify(CALL)
    const path = join(folder, 'cut.jsonl')
    writeFileSync(path, `${whole}\n${whole.slice(0, 90)}`)
    expect(() => readRecording(path)).toThrow(/^\/.*\/cut\.jsonl, line 2: .*JSON.*, want a whole line$/)
  })

  it.each(['method', 'conn', 'stream', 'ms', 'request', 'code'] as const)(
    'with a line without %s is refused, naming the line and the field',
    (field) => {
      const { [field]: _, ...rest } = CALL
      expect(() => parseLines('a.jsonl', JSON.stringify(rest))).toThrow(
        new RegExp(`^a\\.jsonl, line 1: ${field}: not an? \\w+, want a whole line$`),
      )
    },
  )
})

describe('the recordings', () => {
  const recordings = allRecordings()

  it('are those of three callers', () => {
    expect(new Set(recordings.map(({ name }) => name.split('.')[0]))).toEqual(
      new Set(['agent-ctl', 'go-shim', 'runtime-rs']),
    )
  })

  it.each(recordings)(
    '$name: the bytes of each request decode to what was recorded beside them',
    ({ lines }) => {
      const calls = lines.filter((line): line is RecordedCall => line.kind === 'call')
      const decodable = calls.filter(({ requestBytes }) => requestBytes !== undefined)
      for (const call of decodable) expect(decodedRequest(call)).toEqual(call.request)
    },
  )
})
