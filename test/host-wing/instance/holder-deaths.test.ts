import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { LIFE, type LifePlan } from '../../support/wing/lives/life.ts'
import { ADMIN, ensureRequest } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const PLAN: LifePlan = { request: ensureRequest('web'), other: '/disks/other-16M', data: '/disks/data-8M' }

it('a holder that dies at any request leaves a stopped instance that starts anew, or none', async () => {
  let request = 1
  for (; await dies(request); request++) expect(request).toBeLessThan(100)
  expect(request).toBeGreaterThan(10)
})

/** Lives a life whose holder dies at a request. Returns whether the life has so many. */
async function dies(request: number): Promise<boolean> {
  const wing = new FakeWing({ exitMs: 50 })
  let requests = 0
  wing.holders.prepare = (qemu) => {
    qemu.nodes.set('name-root-file', { file: '/disks/root-16M', size: 2 ** 24, isRaw: true })
  }
  wing.holders.onRequest = (holder) => {
    requests += 1
    if (requests === request) holder.die()
  }
  const instances = await wing.open()
  for (const [name, call] of Object.entries(LIFE)) {
    const at = `${name}, request ${request}`
    try {
      await call(instances, PLAN)
    } catch (error) {
      if (instances.list(ADMIN).length === 0) await LIFE.ensure?.(instances, PLAN)
      else await expect.poll(async () => (await instances.get('web', ADMIN)).state).toBe(State.STOPPED)
      expect(requests, `${at}: ${error}`).toBeGreaterThanOrEqual(request)
      if (name !== 'remove') await LIFE.run?.(instances, PLAN)
    }
  }
  await instances.remove('web', ADMIN).catch(() => {})
  const left = [wing.holders.processes, readdirSync(join(wing.folder, 'instances')), await wing.rows()]
  expect(left, `request ${request}`).toEqual([[], [], []])
  return requests >= request
}
