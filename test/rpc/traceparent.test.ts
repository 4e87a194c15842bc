import { describe, expect, it } from 'vitest'
import { parseTraceparent } from '../../src/rpc/traceparent.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const SPAN = '00f067aa0ba902b7'

describe('a traceparent', () => {
  it.each([
    [`00-${TRACE}-${SPAN}-01`, true],
    [`00-${TRACE}-${SPAN}-00`, false],
    [`00-${TRACE}-${SPAN}-03`, true],
    // A later version may have more fields.
    [`cc-${TRACE}-${SPAN}-01-what`, true],
  ])('names a trace and a span: %s', (text, isSampled) => {
    expect(parseTraceparent(text)).toEqual({ traceId: TRACE, spanId: SPAN, isSampled })
  })

  it.each([
    ['', 'nothing'],
    [`ff-${TRACE}-${SPAN}-01`, 'the version that is none'],
    [`00-${TRACE}-${SPAN}-01-more`, 'more than its version has'],
    [`01-${TRACE}-${SPAN}-01more`, 'more without a hyphen'],
    [`00-${'0'.repeat(32)}-${SPAN}-01`, 'a trace of zeros'],
    [`00-${TRACE}-${'0'.repeat(16)}-01`, 'a span of zeros'],
    [`00-${TRACE.toUpperCase()}-${SPAN}-01`, 'upper case'],
    [`00-${TRACE}-${SPAN}-1`, 'short flags'],
    [`00-${TRACE}-${SPAN}`, 'no flags'],
    [`x00-${TRACE}-${SPAN}-01`, 'a character before it'],
  ])('is invalid: %j, which has %s', (text) => {
    expect(parseTraceparent(text)).toBeUndefined()
  })
})
