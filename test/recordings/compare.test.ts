import { describe, expect, it } from 'vitest'
import { checkAnswer } from '../../src/ctl/recording/compare.ts'
import type { JsonObject, RecordedCall } from '../../src/ctl/recording/recording.ts'
import { DIFFERENCES, notesOf } from './notes.ts'
import { recordingNamed } from './recording.ts'

function recorded(name: string, line: number) {
  const recording = recordingNamed(name)
  const call = recording.lines.find((one): one is RecordedCall => one.kind === 'call' && one.line === line)
  if (call?.answer === undefined) throw new Error(`${name}, line ${line}: not a call with an answer`)
  return { call, answer: call.answer, notes: notesOf(recording) }
}

describe('the notes about the recordings', () => {
  it.each(DIFFERENCES)('$recording, lines $lines: $because', ({ recording, lines, instead }) => {
    for (const line of lines) {
      const { call, answer, notes } = recorded(recording, line)
      checkAnswer(call, instead(answer), notes)
      expect(() => checkAnswer(call, answer, notes)).toThrow(/as recorded, remove the difference/)
      expect(() => checkAnswer(call, { ...answer, code: 2 }, notes)).toThrow(
        /failed with 2: [\s\S]*, want .*, because /,
      )
    }
  })
})

describe('an answer', () => {
  it.each([
    { of: 'the reference', name: 'agent-ctl.every-command', line: 134, what: 'sizes' },
    { of: 'this agent', name: 'go-shim.exec-tty-pause-metrics', line: 36, what: 'numbers' },
  ])('of $of is compared without its $what', ({ name, line }) => {
    const { call, answer, notes } = recorded(name, line)
    const changed: JsonObject = JSON.parse(
      JSON.stringify(answer.response, (_, value) =>
        /^\d+$/.test(value) && typeof value === 'string' ? '4711' : value,
      ),
    )
    expect(changed).not.toEqual(answer.response)
    checkAnswer(call, { ...answer, response: changed }, notes)
    expect(() => checkAnswer(call, { ...answer, response: {} }, notes)).toThrow(
      /^answered \{\}, want answered/,
    )
  })

  it.each([
    { of: 'the reference', name: 'agent-ctl.every-command', line: 77, isCompared: false },
    { of: 'this agent', name: 'go-shim.ctr-run', line: 16, isCompared: true },
  ])('of $of that is a failure: text compared: $isCompared', ({ name, line, isCompared }) => {
    const { call, answer, notes } = recorded(name, line)
    const check = () => checkAnswer(call, { ...answer, message: 'other words' }, notes)
    if (isCompared) expect(check).toThrow('failed with 5: other words, want failed with 5: Process not found')
    else expect(check).not.toThrow()
  })
})
