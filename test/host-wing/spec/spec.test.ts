import { describe, expect, it } from 'vitest'
import { qemuId, specKey } from '../../../src/host/spec/spec.ts'

describe('specKey', () => {
  it('keeps a UUID in lower case, so that one component has one key', () => {
    expect(specKey('0B7E4A52-9C7E-4A63-8F3E-2F3F5D6A7B8C')).toBe('0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c')
  })

  it.each(['', '9disk', 'a b', 'a,b', 'Disk', '0b7e4a52-9c7e'])('refuses %j', (text) => {
    expect(() => specKey(text)).toThrow('want a UUID or a name')
  })

  it('returns ids that begin with a letter and are not the name of a property', () => {
    expect(qemuId(specKey('0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'))).toMatch(/^uuid-0b7e/)
    expect(qemuId(specKey('root'))).toBe('name-root')
  })
})
