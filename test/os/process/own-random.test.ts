import { describe, expect, it } from 'vitest'
import { withNativeInOtherProcess } from '../../support/os/real-native.ts'

describe('reseedGenerators', () => {
  // Needs a function of OpenSSL that Node exports (CONTRIBUTING.md).
  it('finds OpenSSL in Node', async () => {
    expect(await withNativeInOtherProcess('console.log(native.reseedGenerators())')).toBe('0\n')
  })
})
