import { describe, expect, it } from 'vitest'
import { isEmpty, printJson } from '../../src/oci/json.ts'

describe('printJson', () => {
  it.each([
    ['2^64-1', 18446744073709551615n, '18446744073709551615'],
    ['the lowest 64-bit number', -9223372036854775808n, '-9223372036854775808'],
    ['text with quotes and line ends', 'a"b\n', '"a\\"b\\n"'],
    ['a list', [1, 'x', false, 2n], '[1,"x",false,2]'],
    ['an object in its order', { b: 1n, a: { c: [] } }, '{"b":1,"a":{"c":[]}}'],
    ['an undefined member', { a: undefined, b: '' }, '{"b":""}'],
  ])('prints %s', (_what, value, text) => {
    expect(printJson(value)).toBe(text)
  })
})

describe('isEmpty', () => {
  it('is true for the values that proto3 cannot distinguish from absent ones', () => {
    expect([0, 0n, '', false, [], {}].map(isEmpty)).not.toContain(false)
    expect([-1n, 1, 'x', true, [0], { g: '' }].map(isEmpty)).not.toContain(true)
  })
})
