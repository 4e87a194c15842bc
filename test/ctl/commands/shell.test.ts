import { describe, expect, it } from 'vitest'
import { COMMANDS } from '../../../src/ctl/commands/table.ts'
import { completionsOf, wordsOf } from '../../../src/ctl/commands/tool/shell.ts'

describe('the words of a line', () => {
  it.each<[string, readonly string[]]>([
    ['', []],
    ['  ps  web ', ['ps', 'web']],
    [`exec web sh -c 'echo "a b"'`, ['exec', 'web', 'sh', '-c', 'echo "a b"']],
    ['x "a \\"b\\" c"d', ['x', 'a "b" cd']],
    ["x ''", ['x', '']],
    ['x a\\ b', ['x', 'a b']],
  ])('%j', (line, words) => {
    expect(wordsOf(line)).toEqual(words)
  })

  it.each([`x 'a`, 'x "a', 'x a\\'])('are refused when a quote is not closed: %j', (line) => {
    expect(() => wordsOf(line)).toThrow('a quote is not closed')
  })
})

describe('completion in the shell', () => {
  it.each([
    ['eve', ['events']],
    ['ex', ['exec', 'exit', 'exits']],
    ['events --f', ['--follow']],
    ['nope --', []],
  ])('of %j', (line, completions) => {
    expect(completionsOf(line, { commands: COMMANDS })).toEqual(completions)
  })
})
