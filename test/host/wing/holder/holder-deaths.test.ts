import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { LIFE } from '../../../support/wing/lives/life.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const NAMES = Object.keys(LIFE)
/** Those for which a holder runs already. */
const LATER = NAMES.filter((name) => name !== 'ensure' && name !== 'start')

describe('a holder that is killed', () => {
  it.each(LATER)('before and during `%s` leaves nothing, and its instance can start anew', async (last) => {
    for (const when of ['before', 'during'] as const) {
      const folder = temporaryFolder()
      const plan = lifePlan(join(folder, 'disks'))
      const instances = await openReal(folder, memoryRegistry())
      for (const name of NAMES.slice(0, NAMES.indexOf(last))) await LIFE[name]?.(instances, plan)
      const pid = await holderOf(instances)
      if (when === 'before') kill(pid)
      const call = LIFE[last]?.(instances, plan)
      if (when === 'during') kill(pid)
      await call?.catch(() => {})
      if (instances.list(ADMIN).length > 0) {
        await expect.poll(async () => (await instances.get('web', ADMIN)).state).toBe(State.STOPPED)
        await LIFE.run?.(instances, plan)
        await LIFE.remove?.(instances, plan)
      }
      await instances.close()
      expect(leftovers(folder), when).toEqual([])
    }
  })
})

async function holderOf(instances: Instances): Promise<number> {
  return (await instances.get('web', ADMIN)).holderPid
}

function kill(pid: number): void {
  process.kill(pid, 'SIGKILL')
}
