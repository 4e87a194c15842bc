import { describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import { checkAppendedWords } from '../../../src/microvm/run/run-command.ts'
import { KATA_COMMAND_LINE } from '../../fixtures/kata-command-line.ts'

describe('checkAppendedWords', () => {
  it.each([
    ['agent.lgo=debug', '--append agent.lgo: unknown setting, did you mean "agent.log"?'],
    ['agent.vsock', '--append agent.vsock: unknown setting, want one of docs/reference/settings.md'],
  ])('refuses %s', (text, sentence) => {
    const checking = () => checkAppendedWords({ append: ['quiet', text], image: undefined })
    expect(checking).toThrow(UsageError)
    expect(checking).toThrow(sentence)
  })

  it('takes what Kata’s shims write, and words for others than the agent', () => {
    const append = [KATA_COMMAND_LINE.join(' '), 'agents=1 loglevel=6']
    expect(() => checkAppendedWords({ append, image: undefined })).not.toThrow()
  })

  it('takes any word for an image of the user’s own, whose agent may know it', () => {
    expect(() => checkAppendedWords({ append: ['agent.lgo'], image: 'root.erofs' })).not.toThrow()
  })
})
