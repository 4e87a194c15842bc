import { describe, expect, it } from 'vitest'
import { SIGTERM } from '../../../src/base/signals.ts'
import { handlesSignal } from '../../../src/handlers/process/signal-process.ts'

const TERM = '0000000000004000'
const NONE = '0000000000000000'

const status = (masks: { SigBlk?: string; SigIgn?: string; SigCgt?: string }) =>
  `Name:\tsh\nShdPnd:\t${TERM}\nSigBlk:\t${masks.SigBlk ?? NONE}\nSigIgn:\t${masks.SigIgn ?? NONE}\nSigCgt:\t${masks.SigCgt ?? NONE}\nCapInh:\t0\n`

describe('handlesSignal', () => {
  it.each([
    ['signal 0 of a process that is there', status({}), 0, true],
    ['a number beyond the last signal', status({ SigCgt: 'ffffffffffffffff' }), 65, false],
    ['the last signal', status({ SigCgt: '8000000000000000' }), 64, true],
    ['a status that cannot be read', undefined, SIGTERM, false],
    ['signal 0 of one that cannot be read', undefined, 0, false],
    ['a blocked signal', status({ SigBlk: TERM }), SIGTERM, true],
    ['an ignored signal', status({ SigIgn: TERM }), SIGTERM, true],
    ['a caught signal', status({ SigCgt: TERM }), SIGTERM, true],
    ['a signal in none of the masks', status({}), SIGTERM, false],
    ['its neighbours only', status({ SigCgt: '000000000000a000' }), SIGTERM, false],
    ['no hexadecimal number', status({ SigCgt: 'xyz' }), SIGTERM, false],
    ['spaces around the number', `SigCgt:  \t ${TERM} \n`, SIGTERM, true],
    ['an empty status', '', SIGTERM, false],
  ])('%s', (_what, text, signal, expected) => {
    expect(handlesSignal(text, signal)).toBe(expected)
  })
})
