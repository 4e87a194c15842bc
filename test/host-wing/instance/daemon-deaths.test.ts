import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { LIFE, type LifePlan } from '../../support/wing/life.ts'
import { mortalRegistry } from '../../support/wing/mortal-registry.ts'
import { ensureRequest } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const PLAN: LifePlan = { request: ensureRequest('web'), other: '/disks/other-16M', data: '/disks/data-8M' }

describe('a daemon that dies at a write of its registry', () => {
  it.each(['before', 'after'] as const)(
    '%s: the repeated call ends well, and nothing is left',
    async (when) => {
      let commit = 1
      for (; await dies(commit, when); commit++) expect(commit).toBeLessThan(100)
      expect(commit).toBeGreaterThan(20)
    },
  )
})

/** Lives a life whose daemon dies at a commit. Returns whether the life has so many. */
async function dies(commit: number, when: 'before' | 'after'): Promise<boolean> {
  const wing = new FakeWing()
  wing.holders.prepare = (qemu) => {
    qemu.nodes.set('name-root-file', { file: '/disks/root-16M', size: 2 ** 24, isRaw: true })
    qemu.devices.add('name-root')
  }
  const death = Promise.withResolvers<'dead'>()
  let hasDied = false
  const registry = mortalRegistry(wing.registry, { commit, when }, () => {
    hasDied = true
    death.resolve('dead')
  })
  let instances: Instances = await wing.open(registry)
  for (const [name, call] of Object.entries(LIFE)) {
    const at = `${name}, ${when} commit ${commit}`
    const ended = await Promise.race([
      call(instances, PLAN).catch((error) => Promise.reject(new Error(at, { cause: error }))),
      ...(instances === undefined || hasReopened(instances) ? [] : [death.promise]),
    ])
    if (ended !== 'dead') continue
    instances = reopened(await wing.open())
    await call(instances, PLAN).catch((error) => Promise.reject(new Error(`again ${at}`, { cause: error })))
  }
  await instances.close()
  const left = [wing.holders.processes, readdirSync(join(wing.folder, 'instances')), await wing.rows()]
  expect(left, `${when} commit ${commit}`).toEqual([[], [], []])
  return hasDied
}

const second = new WeakSet<Instances>()
function reopened(instances: Instances): Instances {
  second.add(instances)
  return instances
}
function hasReopened(instances: Instances): boolean {
  return second.has(instances)
}
