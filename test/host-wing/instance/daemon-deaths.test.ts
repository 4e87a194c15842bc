import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Backend } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import { type Death, mortalRegistry } from '../../support/wing/deaths/mortal-registry.ts'
import { DAEMON_LIFE, type DaemonLifePlan } from '../../support/wing/lives/daemon-life.ts'
import { LIFE, type LifePlan } from '../../support/wing/lives/life.ts'
import { ensureRequest, specification } from '../../support/wing/requests.ts'
import { FakeWing } from '../../support/wing/wing.ts'

const PLAN: LifePlan = { request: ensureRequest('web'), other: '/disks/other-16M', data: '/disks/data-8M' }

describe('a daemon that dies', () => {
  const machine: Omit<Life<LifePlan>, 'at'> = { calls: LIFE, planOf: () => PLAN }
  const daemons: Omit<Life<DaemonLifePlan>, 'at'> = { calls: DAEMON_LIFE, planOf: daemonPlan }

  async function diesAtEach<Plan>(life: Life<Plan>, when: Death['when'], least: number): Promise<void> {
    let commit = 1
    for (; await dies(life, { commit, when }); commit++) expect(commit).toBeLessThan(200)
    expect(commit).toBeGreaterThan(least)
  }

  describe.each(['before', 'after'] as const)('%s', (when) => {
    it('a write of its registry: the repeated call ends well, and nothing is left', () =>
      diesAtEach({ ...machine, at: 'commit' }, when, 20))

    it('a write, while daemons of devices start and end: none of them outlives its device', () =>
      diesAtEach({ ...daemons, at: 'commit' }, when, 15))

    it('a command to QEMU meanwhile: the same', () => diesAtEach({ ...daemons, at: 'command' }, when, 40))
  })
})

const TAP = Backend.fromPartial({ tap: { interfaceName: 'tap0', bridge: 'br0' } })

/** Its daemons are those of `wing`. */
function daemonPlan(wing: FakeWing): DaemonLifePlan {
  const { devices, backends } = specification()
  const card = { backend: 'net', slot: 7, nic: { mac: '52:54:00:00:00:09', replaceable: true } }
  const change = { devices: { ...devices, card }, backends: { ...backends, net: TAP } }
  const kinds = () => wing.holders.processes.flatMap((name) => /^(virtiofsd|passt)-/.exec(name)?.[1] ?? [])
  return {
    ...PLAN,
    request: ensureRequest('web', { specification: change }),
    tap: TAP,
    shared: '/shared',
    daemons: () => kinds().sort(),
  }
}

interface Life<Plan> {
  readonly calls: Readonly<Record<string, (instances: Instances, plan: Plan) => Promise<unknown>>>
  readonly planOf: (wing: FakeWing) => Plan
  /** What the daemon dies at: a commit of its registry, or a command to QEMU. */
  readonly at: 'commit' | 'command'
}

/** Lives a life whose daemon dies. Returns whether the life has so many commits or commands. */
async function dies<Plan>({ calls, planOf, at }: Life<Plan>, moment: Death): Promise<boolean> {
  const wing = new FakeWing()
  const plan = planOf(wing)
  const death = Promise.withResolvers<'dead'>()
  let hasDied = false
  const die = () => {
    hasDied = true
    death.resolve('dead')
  }
  let commands = 0
  wing.holders.prepare = (qemu) => {
    qemu.nodes.set('name-root-file', { file: '/disks/root-16M', size: 2 ** 24, isRaw: true })
    qemu.devices.add('name-root')
    qemu.onNetworkGone = () => wing.links.clear()
    qemu.isLast = () => {
      if (at === 'commit' || ++commands !== moment.commit) return undefined
      die()
      return moment.when
    }
  }
  const registry: Registry =
    at === 'commit'
      ? mortalRegistry(wing.registry, moment, die)
      : {
          ...wing.registry,
          commit: (changes) => (hasDied ? new Promise<void>(() => {}) : wing.registry.commit(changes)),
        }
  let instances: Instances = await wing.open(registry)
  let isSecond = false
  for (const [name, call] of Object.entries(calls)) {
    const where = `${name}, ${moment.when} ${at} ${moment.commit}`
    const failed = (error: unknown) => Promise.reject(new Error(where, { cause: error }))
    const ended = await Promise.race([
      call(instances, plan).catch(failed),
      ...(isSecond ? [] : [death.promise]),
    ])
    if (ended !== 'dead') continue
    isSecond = true
    instances = await wing.open()
    await call(instances, plan).catch(failed)
  }
  await instances.close()
  const left = [wing.holders.processes, readdirSync(join(wing.folder, 'instances')), await wing.rows()]
  expect(left, `${moment.when} ${at} ${moment.commit}`).toEqual([[], [], []])
  return hasDied
}
