import { describe, expect, it } from 'vitest'
import { codeLines, commentLines } from '../../scripts/count-lines.ts'

const SOURCE = `
/** A comment
    of two lines. */
const url = 'http://x' // a comment behind code

const pattern = /[/*]'/ // a regular expression is no comment and begins no string
const text = \`
// a line of a template
\`
/* c */ int x;
`

describe('the counter of lines', () => {
  it('counts a line that holds more than comments and blanks', () => {
    expect(codeLines(SOURCE)).toBe(6)
  })

  it('counts the lines of comments, also behind code', () => {
    expect(commentLines(SOURCE)).toBe(5)
  })
})
