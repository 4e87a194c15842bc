import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { messageOf } from '../../../../src/base/errors.ts'
import { State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { INSTANCE_LIMITS } from '../../../../src/host/instance/limits.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { processes, processState, signalThose } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'
import { DAEMON_LIFE } from '../../../support/wing/lives/daemon-life.ts'
import { LIFE } from '../../../support/wing/lives/life.ts'
import { daemonLifePlan, lifePlan, openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const LIMITS = { ...INSTANCE_LIMITS, holderMs: 1500, endMs: 500, exitMs: 500 }
/** Of a call whose holder stands still: a few requests, one after the other. */
const MOST_MS = 15_000
const AT_A_TIME = 8
const TIMEOUT_MS = 300_000

/** Stops the holder of a state folder before a request to it. */
interface Stop {
  readonly folder: string
  readonly request: number
  /** So many there were. */
  requests: number
  /** Of the stopped one; 0 before. */
  pid: number
}

const stops = new Set<Stop>()

describe('a holder that stands still', () => {
  let restore = () => {}

  beforeAll(() => {
    restore = beforeEachRequest((pid) => {
      const folder = folderOf(pid)
      const stop = [...stops].find((each) => folder.startsWith(`${each.folder}/`))
      if (stop === undefined || ++stop.requests !== stop.request) return
      stop.pid = pid
      process.kill(pid, 'SIGSTOP')
      while (processState(pid)?.state !== 'T') {}
    })
  })

  afterAll(() => restore())

  it.each([
    ['of a machine', (folder: string) => bound(LIFE, lifePlan(join(folder, 'disks'))), 15],
    [
      'of daemons of devices',
      (folder: string) => bound(DAEMON_LIFE, daemonLifePlan(join(folder, 'disks'))),
      20,
    ],
  ] as const)(
    'before each request in the life %s is told by name, and the call goes on after it',
    async (_, lifeOf, least) => {
      let next = 1
      let isPast = false
      const live = async () => {
        while (!isPast) isPast = !(await stopsAt(next++, lifeOf)) || isPast
      }
      await Promise.all(Array.from({ length: AT_A_TIME }, live))
      expect(next).toBeGreaterThan(least)
    },
    TIMEOUT_MS,
  )

  it('is ended by the next daemon, which tells so by name, and its instance can start anew', async () => {
    const folder = temporaryFolder()
    const registry = memoryRegistry()
    const plan = lifePlan(join(folder, 'disks'))
    const before = await openReal(folder, registry, { limits: LIMITS })
    const { holderPid } = await before.ensure(plan.request, ADMIN)
    process.kill(holderPid, 'SIGSTOP')
    await before.close()
    const instances = await openReal(folder, registry, { limits: LIMITS })
    expect(await instances.get('web', ADMIN)).toMatchObject({
      state: State.STOPPED,
      reason: `not taken in again: the holder did not answer within ${LIMITS.holderMs} ms`,
    })
    await LIFE.run?.(instances, plan)
    await LIFE.remove?.(instances, plan)
    await instances.close()
    expect(leftovers(folder)).toEqual([])
  })
})

type Call = (instances: Instances) => Promise<unknown>

function bound<Plan>(
  life: Readonly<Record<string, (instances: Instances, plan: Plan) => Promise<unknown>>>,
  plan: Plan,
): readonly (readonly [string, Call])[] {
  return Object.entries(life).map(([name, call]) => [name, (instances) => call(instances, plan)])
}

/** Returns whether the life has so many requests. */
async function stopsAt(
  request: number,
  lifeOf: (folder: string) => readonly (readonly [string, Call])[],
): Promise<boolean> {
  const folder = temporaryFolder()
  const life = lifeOf(folder)
  const instances = await openReal(folder, memoryRegistry(), { limits: LIMITS })
  const stop: Stop = { folder, request, requests: 0, pid: 0 }
  stops.add(stop)
  let hasGoneOn = false
  for (const [name, call] of life) {
    const at = `${name}, request ${request}`
    const begun = performance.now()
    const error = await call(instances).then(
      () => undefined,
      (reason) => reason,
    )
    if (hasGoneOn || stop.pid === 0) {
      expect(error, at).toBeUndefined()
      continue
    }
    expect(performance.now() - begun, at).toBeLessThan(MOST_MS)
    if (error !== undefined)
      expect(error, at).toMatchObject({
        code: 'UNAVAILABLE',
        message: expect.stringMatching(/holder.*answer/),
      })
    // It has been killed where the machine was to end.
    signalThose([stop.pid], 'SIGCONT')
    hasGoneOn = true
    await repeated(() => call(instances)).catch((reason) => {
      throw new Error(`${at}, repeated`, { cause: reason })
    })
  }
  stops.delete(stop)
  expect(instances.list(ADMIN)).toEqual([])
  await instances.close()
  expect(leftovers(folder), `request ${request}`).toEqual([])
  return stop.pid !== 0
}

/** A daemon that is to end does so when the holder goes on, which may be just after the call. */
async function repeated(call: () => Promise<unknown>): Promise<void> {
  for (;;)
    try {
      await call()
      return
    } catch (error) {
      if (!messageOf(error).startsWith('daemons ')) throw error
      await delay(10)
    }
}

const REQUESTS = ['start', 'kill', 'children', 'listen', 'rings', 'attach', 'closeRing', 'end'] as const

/** Calls `look` with the pid of a holder before each request to it. Returns what takes this back. */
function beforeEachRequest(look: (pid: number) => void): () => void {
  const prototype = HolderClient.prototype as unknown as Record<
    string,
    (this: HolderClient, ...words: unknown[]) => unknown
  >
  const own = REQUESTS.map((name) => [name, prototype[name]] as const)
  for (const [name, request] of own)
    prototype[name] = function (...words) {
      look(this.pid)
      return request?.apply(this, words)
    }
  const { open } = HolderClient
  HolderClient.open = (socket, path) => {
    const pid = holderIn(dirname(path))
    if (pid !== undefined) look(pid)
    return open(socket, path)
  }
  return () => {
    Object.assign(prototype, Object.fromEntries(own))
    HolderClient.open = open
  }
}

/** Of a holder's instance; empty for a process that has ended. */
function folderOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] ?? ''
  } catch {
    return ''
  }
}

function holderIn(folder: string): number | undefined {
  return processes().find(({ pid, name }) => name === 'holder' && folderOf(pid) === folder)?.pid
}
