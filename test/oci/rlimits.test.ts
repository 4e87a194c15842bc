import { describe, expect, it } from 'vitest'
import { defaultNofile } from '../../src/oci/rlimits.ts'

const line = (soft: string, hard: string) =>
  `Limit                     Soft Limit           Hard Limit           Units
Max processes             1                    2                    processes
Max open files            ${soft}           ${hard}           files
`

describe('defaultNofile', () => {
  it.each([
    ['far above', line('1073741816', '1073741816'), 1024n, 524288n],
    ['below', line('4096', '4096'), 1024n, 4096n],
    ['below the soft default', line('512', '512'), 512n, 512n],
    ['unknown', '', 1024n, 524288n],
  ])('is capped by the limit of the agent: %s', (_what, limits, Soft, Hard) => {
    expect(defaultNofile(limits)).toEqual({ Type: 'RLIMIT_NOFILE', Soft, Hard })
  })
})
