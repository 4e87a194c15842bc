import { describe, expect, it } from 'vitest'
import { isPeerAllowed } from '../../../src/os/sockets/allow-list.ts'

describe('isPeerAllowed', () => {
  it('allows only the host', () => {
    expect(isPeerAllowed({ cid: 2 }, false)).toBe(true)
    for (const cid of [0, 1, 3, 0xffffffff]) expect(isPeerAllowed({ cid }, false)).toBe(false)
  })

  it('allows the guest itself on request, and no other guest', () => {
    expect(isPeerAllowed({ cid: 1 }, true)).toBe(true)
    for (const cid of [0, 3]) expect(isPeerAllowed({ cid }, true)).toBe(false)
  })

  it('refuses a peer whose address is unknown', () => {
    expect(isPeerAllowed(undefined, true)).toBe(false)
  })
})
