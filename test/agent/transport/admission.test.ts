import { describe, expect, it } from 'vitest'
import { admits } from '../../../src/agent/transport/admission.ts'

describe('admits', () => {
  it('lets in only the host over vsock', () => {
    expect(admits('vsock', { cid: 2, port: 99 }, false)).toBe(true)
    for (const cid of [0, 1, 3, 0xffffffff]) expect(admits('vsock', { cid, port: 99 }, false)).toBe(false)
  })

  it('lets in the guest itself when told to, and nobody else', () => {
    expect(admits('vsock', { cid: 1, port: 99 }, true)).toBe(true)
    for (const cid of [0, 3]) expect(admits('vsock', { cid, port: 99 }, true)).toBe(false)
  })

  it('lets in nobody over vsock whose address is unknown', () => {
    expect(admits('vsock', undefined, true)).toBe(false)
  })

  it('lets in whoever reaches a unix or TCP socket', () => {
    expect(admits('unix', undefined, false)).toBe(true)
    expect(admits('tcp', undefined, false)).toBe(true)
  })
})
