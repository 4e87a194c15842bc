import { describe, expect, it } from 'vitest'
import { AgentError, StatusCode, type StatusCodeName } from '../../src/base/errors.ts'
import { statusOf } from '../../src/rpc/status.ts'

const CODES = Object.keys(StatusCode) as readonly StatusCodeName[]

describe('statusOf', () => {
  it.each(CODES)('keeps the code %s and the text of an AgentError', (code) => {
    expect(statusOf(new AgentError(code, 'Invalid container id'))).toEqual({
      code,
      message: 'Invalid container id',
    })
  })

  it.each([
    ['a plain error', new TypeError('x is not a function'), 'x is not a function'],
    ['an error of Node', Object.assign(new Error('EACCES: open'), { code: 'EACCES' }), 'EACCES: open'],
    ['a text', 'thrown', 'thrown'],
    ['nothing', undefined, 'undefined'],
  ])('returns INTERNAL for %s', (_what, error, message) => {
    expect(statusOf(error)).toEqual({ code: 'INTERNAL', message })
  })

  it('keeps the reason of an AgentError', () => {
    const status = { code: 'ABORTED', message: 'is on its way', reason: 'moving' } as const
    expect(statusOf(new AgentError('ABORTED', 'is on its way', { reason: 'moving' }))).toEqual(status)
  })

  it('appends the causes that the text does not include', () => {
    const root = new Error('ENOENT')
    const cause = new AgentError('NOT_FOUND', 'open /x', { cause: root })
    const error = new AgentError('UNAVAILABLE', 'read the image', { cause })
    expect(statusOf(error)).toEqual({ code: 'UNAVAILABLE', message: 'read the image: open /x: ENOENT' })
    const complete = new AgentError('INTERNAL', 'read the image: open /x: ENOENT', { cause })
    expect(statusOf(complete).message).toBe('read the image: open /x: ENOENT')
  })

  it('truncates a long text in the middle', () => {
    const { message } = statusOf(new AgentError('INTERNAL', `mount ${'x'.repeat(1024 * 1024)}: EINVAL`))
    expect(message).toMatch(/^mount x+…x+: EINVAL$/)
    expect(message.length).toBe(7000)
    const whole = 'y'.repeat(7000)
    expect(statusOf(new Error(whole)).message).toBe(whole)
  })

  it('stops at an error that is its own cause', () => {
    const error = new Error('round')
    error.cause = new Error('and round', { cause: error })
    expect(statusOf(error).message).toBe('round: and round')
  })

  it('keeps an empty text: the host reads only the code', () => {
    expect(statusOf(new AgentError('INTERNAL', ''))).toEqual({ code: 'INTERNAL', message: '' })
  })
})
