import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { bind, type ContainerOptions } from '../../support/containers/container-requests.ts'
import { explosion, FORK_BOMB } from '../../support/containers/fork-bomb.ts'
import type { Pod, RemoteProcess } from '../../support/containers/pod.ts'
import { underAttack } from '../../support/hostile/attack.ts'
import { type CountedTarget, connectedTarget } from '../../support/hostile/guest-target.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod } from '../../support/vm/guest-pod.ts'

/** The agent's answers in an idle guest, and those after memory has run out. */
const IDLE_ANSWERS = 100
const ANSWERS = 200

/**
 * The limits for 99 of 100 answers, for the longest answer and for the end of the container. Without a reserve it takes
 * half a minute.
 */
const LATE_MS = 250
const MUCH_TOO_LATE_MS = 5000

/** A busy machine slows an idle guest, too: its figures are multiplied by this. */
const AS_IDLE = 5

const STAY = 'while :; do sleep 1; done'
const READ_FILES =
  'dd if=/dev/zero of=/tmp/big bs=1M count=50 2>/dev/null; while :; do cat /tmp/big /bin/busybox > /dev/null; done'
const GROW = `awk 'BEGIN { s = "x"; while (length(s) < 1048576) s = s s; for (;;) a[n++] = s n }'`
const fill = (folder: string) => `dd if=/dev/zero of=${folder}/x bs=1M 2>/dev/null`
const tmpfs = (destination: string) => ({
  ...{ destination, type: 'tmpfs', source: 'tmpfs', options: ['size=100%'] },
})

interface Hog {
  readonly attack: string
  readonly args: readonly string[]
  readonly options?: ContainerOptions
  readonly isFull: (pod: Pod) => Promise<unknown>
}

const outOfMemory = async ({ agent }: Pod) =>
  expect(await agent.getOOMEvent({})).toMatchObject({ containerId: 'hog' })

const HOGS: readonly Hog[] = [
  {
    attack: 'two tmpfs and the page cache filled',
    args: ['sh', '-c', `(${READ_FILES}) & ${fill('/a')} & ${fill('/b')} & ${STAY}`],
    options: { mounts: [tmpfs('/a'), tmpfs('/b')] },
    isFull: outOfMemory,
  },
  {
    attack: 'anonymous memory taken again and again',
    args: ['sh', '-c', `(while :; do ${GROW}; done) & ${STAY}`],
    isFull: outOfMemory,
  },
  {
    attack: 'fork bomb without a limit',
    args: FORK_BOMB,
    isFull: ({ agent }) => explosion(agent, 'hog', 100n),
  },
]

describe.skipIf(cannotBoot() !== undefined)('a container without limits', () => {
  let guest: TestGuest
  let pod: Pod
  let target: CountedTarget
  let idle: { readonly p99Ms: number; readonly endMs: number }
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({ cpus: 1, memoryMib: 256 }))
    target = connectedTarget(guest)
    const rest = async () => {
      const init = await pod.run('idle', ['sleep', '1000'])
      await target.answers(IDLE_ANSWERS)
      return end('idle', init)
    }
    const { result: endMs, figures } = await underAttack('nothing, for comparison', target, rest, left)
    idle = { p99Ms: figures.p99Ms, endMs }
  })
  afterAll(() => guest?.stop())

  async function end(containerId: string, init: RemoteProcess): Promise<number> {
    const begin = performance.now()
    await pod.agent.signalProcess({ containerId, signal: SIGKILL })
    await init.wait()
    await pod.remove(containerId)
    return performance.now() - begin
  }

  async function left(): Promise<number> {
    const mounts = [bind('/sys/fs/cgroup', '/guest/cgroup')]
    const found = await pod.output('look', 'ls -d /guest/cgroup/containers/*/', { mounts })
    return found.trim().split('\n').length - 1
  }

  it.each(HOGS)(
    'is answered, killed and removed in time: $attack',
    async ({ attack, args, options, isFull }) => {
      const hog = async () => {
        const init = await pod.run('hog', args, options)
        await isFull(pod)
        await target.answers(ANSWERS)
        return end('hog', init)
      }
      const { result: endMs, figures } = await underAttack(attack, target, hog, left)
      expect(figures.p99Ms).toBeLessThan(Math.max(LATE_MS, AS_IDLE * idle.p99Ms))
      expect(figures.maxMs).toBeLessThan(MUCH_TOO_LATE_MS)
      expect(endMs).toBeLessThan(Math.max(MUCH_TOO_LATE_MS, AS_IDLE * idle.endMs))
      expect(figures.left).toBe(0)
    },
  )
})
