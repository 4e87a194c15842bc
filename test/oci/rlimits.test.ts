import { describe, expect, it } from 'vitest'
import { nofileIn } from '../../src/oci/rlimits.ts'

const line = (soft: string, hard: string) =>
  `Limit                     Soft Limit           Hard Limit           Units
Max processes             1                    2                    processes
Max open files            ${soft}           ${hard}           files
`

describe('nofileIn', () => {
  it.each([
    ['1073741824', '1073741824'],
    ['1024', '524288'],
    ['512', '4096'],
  ])('is the limit of the agent, neither lowered nor raised: %s, %s', (soft, hard) => {
    const expected = { Type: 'RLIMIT_NOFILE', Soft: BigInt(soft), Hard: BigInt(hard) }
    expect(nofileIn(line(soft, hard))).toEqual(expected)
  })

  it('is left to the runtime when the kernel does not report it', () => {
    expect(nofileIn('')).toBeUndefined()
  })
})
