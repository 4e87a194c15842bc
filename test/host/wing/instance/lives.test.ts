import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { DEFAULT_LIVES, INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import { State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { type Random, randomFrom } from '../../../support/kills/random.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { LIFE, type LifePlan } from '../../../support/wing/lives/life.ts'
import { lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const LIVES = Number(process.env[INSTANCES.lives] ?? DEFAULT_LIVES)
const SEED = Number(process.env[INSTANCES.seed] ?? 1)
const AT_A_TIME = 3
const ACTS_PER_LIFE = 10

/** Failures of a call whose machine ends meanwhile, or is stopped. */
const EXPECTED = ['FAILED_PRECONDITION', 'UNAVAILABLE', 'ABORTED', 'INTERNAL']

interface Life {
  readonly plan: LifePlan
  instances: Instances
  readonly reopen: () => Promise<void>
}

type Act = (life: Life) => Promise<unknown>

const call =
  (name: string): Act =>
  ({ instances, plan }) =>
    LIFE[name]?.(instances, plan) ?? Promise.reject(new Error(`no call ${name}`))

const ACTS: Readonly<Record<string, Act>> = {
  ...Object.fromEntries(
    ['run', 'pause', 'reset', 'plug', 'unplug', 'replace', 'allocatePort', 'stop'].map((name) => [
      name,
      call(name),
    ]),
  ),
  'kill QEMU': (life) => kill(life, 'qemuPid'),
  'kill the holder': (life) => kill(life, 'holderPid'),
  'restart the daemon': ({ reopen }) => reopen(),
  'kill QEMU while it is plugged': (life) => Promise.all([call('plug')(life), kill(life, 'qemuPid')]),
  'kill the holder while QEMU runs again': (life) =>
    Promise.all([call('run')(life), kill(life, 'holderPid')]),
}

it(
  `${LIVES} instances live random lives, and leave nothing`,
  async () => {
    const random = randomFrom(SEED)
    const seeds = Array.from({ length: LIVES }, () => Math.floor(random() * 0x7fffffff))
    const next = async () => {
      for (let seed = seeds.shift(); seed !== undefined; seed = seeds.shift()) await live(randomFrom(seed))
    }
    await Promise.all(Array.from({ length: AT_A_TIME }, next))
  },
  60_000 + LIVES * 20_000,
)

async function live(random: Random): Promise<void> {
  const folder = temporaryFolder()
  const registry = memoryRegistry()
  const plan = lifePlan(join(folder, 'disks'))
  const acts: string[] = []
  const life: Life = {
    plan,
    instances: await openReal(folder, registry),
    reopen: async () => {
      await life.instances.close()
      life.instances = await openReal(folder, registry)
    },
  }
  await call('ensure')(life)
  for (let count = 0; count < ACTS_PER_LIFE; count++) {
    const name = Object.keys(ACTS)[Math.floor(random() * Object.keys(ACTS).length)] ?? ''
    acts.push(name)
    try {
      await ACTS[name]?.(life)
    } catch (error) {
      expect(
        error instanceof AgentError && EXPECTED.includes(error.code),
        `${acts.join(', ')}: ${error}`,
      ).toBe(true)
    }
    const { state } = await life.instances.get('web', ADMIN)
    expect([State.PAUSED, State.RUNNING, State.STOPPING, State.STOPPED], acts.join(', ')).toContain(state)
  }
  await life.instances.remove('web', ADMIN)
  await life.instances.close()
  expect(leftovers(folder), acts.join(', ')).toEqual([])
  rmSync(folder, { recursive: true })
}

async function kill({ instances }: Life, which: 'qemuPid' | 'holderPid'): Promise<void> {
  const pid = (await instances.get('web', ADMIN))[which]
  if (pid === 0) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    // It has ended meanwhile.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}
