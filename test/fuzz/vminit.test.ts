import fc from 'fast-check'
import { beforeAll, describe } from 'vitest'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { buildChannelDisturber, buildSanitizedVminit } from '../support/vminit/compiled.ts'
import { run } from '../support/vminit/supervised.ts'

let vminit: string
let disturber: string

beforeAll(async () => {
  vminit = await buildSanitizedVminit()
  disturber = await buildChannelDisturber()
})

describe('the channel of vminit', () => {
  // A case is 20,000 records.
  fuzz('vminit/records', {
    share: 0.05,
    batch: 5,
    input: fc.nat(0x7fffffff),
    show: (seed) => `disturb-channel ${seed}`,
    run: async (seed) => {
      const { status, stderr } = await run([vminit, '--', disturber, String(seed)])
      const told = stderr.replaceAll(/^vminit: ignored a .*\n/gm, '')
      if (status !== 0 || told !== '') throw new Error(`ended with ${status}\n${told}`)
    },
  })
})
