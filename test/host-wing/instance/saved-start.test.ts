import { describe, expect, it } from 'vitest'
import { tapsBefore } from '../../../src/host/instance/machine/saved-start.ts'
import type { PlannedStep } from '../../../src/host/instance/machine/steps.ts'

const NEW_MAC = '52:aa:00:00:00:01'
const OLD_MAC = '52:54:00:00:00:01'
const SAVED = {
  step: 'clone',
  words: [],
  steps: [],
  rows: [],
  bring: async () => {},
  load: async () => {},
} as const
const PLANNED: readonly PlannedStep[] = [
  { step: 'qemu', words: ['', 'qmp'] },
  { step: 'tap', words: ['link', 'tap0', ''], mac: NEW_MAC },
]

describe('tapsBefore', () => {
  it('has the hardware address that the guest of a clone still has', () => {
    const [, tap] = tapsBefore(PLANNED, { ...SAVED, macsBefore: new Map([[NEW_MAC, OLD_MAC]]) })
    expect(tap?.mac).toBe(OLD_MAC)
  })

  it('has that of the card where the guest has it already', () => {
    expect(tapsBefore(PLANNED, SAVED)).toEqual(PLANNED)
  })

  it('has no tap that is set up later', () => {
    expect(tapsBefore(PLANNED, { ...SAVED, keepsTapsDown: true }).map(({ step }) => step)).toEqual(['qemu'])
  })
})
