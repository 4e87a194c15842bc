import { describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import type { Death } from '../../../support/wing/deaths/mortal-registry.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { type LifeName, runLife } from '../../../support/wing/lives/run-life.ts'

/** The commits of each life; one that has more fails this test. */
const COMMITS = { machine: 22, daemons: 17, documents: 23 } as const satisfies Record<LifeName, number>
/** `npm run instances` takes all moments, and this group one of so many. */
const SHARES = { machine: 5, daemons: 5, documents: 10 } as const satisfies Record<LifeName, number>
const shareOf = (life: LifeName) => (process.env[INSTANCES.lives] === undefined ? SHARES[life] : 1)
const TIMEOUT_MS = 600_000
const AT_A_TIME = 3

const deathsOf = (life: LifeName) =>
  (['before', 'after'] as const)
    .flatMap((when) =>
      Array.from({ length: COMMITS[life] }, (_, index): Death => ({ commit: index + 1, when })),
    )
    .filter((_, index) => index % shareOf(life) === 0)

describe.each(['machine', 'daemons', 'documents'] as const)(
  'the death of a daemon with real machines, in the life %s',
  (life) => {
    it(
      'is followed by the same call that ends well, and leaves nothing',
      async () => {
        const waiting = [...deathsOf(life)]
        const live = async () => {
          for (let death = waiting.shift(); death !== undefined; death = waiting.shift())
            await dieAndGoOn(life, death)
        }
        await Promise.all(Array.from({ length: AT_A_TIME }, live))
      },
      TIMEOUT_MS,
    )

    it('has no further moment', async () => {
      const folder = temporaryFolder()
      expect(
        await runLife(life, folder, 'ensure', { commit: COMMITS[life] + 1, when: 'before' }),
      ).toMatchObject({
        last: 'end',
      })
      expect(leftovers(folder)).toEqual([])
    })
  },
)

async function dieAndGoOn(life: LifeName, death: Death): Promise<void> {
  const folder = temporaryFolder()
  const at = `${death.when} commit ${death.commit}`
  const { last, signal, errors } = await runLife(life, folder, 'ensure', death)
  expect([signal, errors], at).toEqual(['SIGKILL', ''])
  expect(await runLife(life, folder, last), `${at}, in ${last}`).toMatchObject({ last: 'end', errors: '' })
  expect(leftovers(folder), at).toEqual([])
}
