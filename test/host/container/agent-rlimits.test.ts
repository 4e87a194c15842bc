import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'

/**
 * The limits that a machine may allow to be lowered only, as a request and as /proc/PID/limits name them. The two other
 * limits, of priorities, are already 0.
 */
const LIMITS: readonly (readonly [string, string, bigint, bigint])[] = [
  ['RLIMIT_CPU', 'Max cpu time', 3000n, 4000n],
  ['RLIMIT_FSIZE', 'Max file size', 1_000_000n, 2_000_000n],
  ['RLIMIT_DATA', 'Max data size', 1_000_000_000n, 2_000_000_000n],
  ['RLIMIT_STACK', 'Max stack size', 1_048_576n, 2_097_152n],
  ['RLIMIT_CORE', 'Max core file size', 7n, 9n],
  ['RLIMIT_NPROC', 'Max processes', 5000n, 6000n],
  ['RLIMIT_NOFILE', 'Max open files', 77n, 99n],
  ['RLIMIT_MEMLOCK', 'Max locked memory', 65_536n, 131_072n],
  ['RLIMIT_AS', 'Max address space', 10_000_000_000n, 20_000_000_000n],
  ['RLIMIT_LOCKS', 'Max file locks', 100n, 200n],
  ['RLIMIT_SIGPENDING', 'Max pending signals', 300n, 400n],
  ['RLIMIT_MSGQUEUE', 'Max msgqueue size', 10_000n, 20_000n],
  ['RLIMIT_RTTIME', 'Max realtime timeout', 50_000n, 60_000n],
]

const AT_ONCE = 4

const OWN = 10

const process = { Rlimits: LIMITS.map(([Type, , Soft, Hard]) => ({ Type, Soft, Hard })) }
const expected = LIMITS.map(([, name, soft, hard]) => `${name}: ${soft} ${hard}`).sort()

/** The requested limits in the text of /proc/PID/limits. */
function shownIn(limits: string): readonly string[] {
  const rows = [...limits.matchAll(/^(Max .*?) {2,}(\d+) +(\d+)/gm)]
  const named = new Set(LIMITS.map(([, name]) => name))
  return rows
    .filter(([, name]) => named.has(name ?? ''))
    .map(([, name, soft, hard]) => `${name}: ${soft} ${hard}`)
    .sort()
}

describe.each([
  ['runc', 200],
  ['crun', 20],
] as const)('limits of processes made by %s', (runtime, execs) => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod({ runtime })
  })
  afterAll(() => pod.stop())

  it('are those that the request names, for the first process', async () => {
    expect(shownIn(await pod.output('first', 'cat /proc/self/limits', { process }))).toEqual(expected)
  })

  it(`are the same for each of ${execs} added ones`, async () => {
    await pod.run('idle', ['sleep', '1000'], { process })
    const different = new Map<string, number>()
    const addOne = async (number: number) => {
      // It looks after the call's answer: an older runc may set the soft limit of open files too high at first.
      const script = 'read line; cat /proc/self/limits'
      const added = await pod.add('idle', `e${number}`, ['sh', '-c', script], { process })
      await added.write('\n')
      const shown = shownIn((await added.readAll()).toString()).filter((line) => !expected.includes(line))
      for (const line of shown) different.set(line, (different.get(line) ?? 0) + 1)
      expect(await added.wait()).toBe(0)
    }
    for (let number = 0; number < execs; number += AT_ONCE)
      await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => addOne(number + index)))
    expect(Object.fromEntries(different)).toEqual({})
    await pod.remove('idle')
  })

  it('stay those that an added process sets itself at once', async () => {
    await pod.run('idle', ['sleep', '1000'], { process })
    for (let number = 0; number < OWN; number += 1) {
      const added = await pod.add(
        'idle',
        `own${number}`,
        ['sh', '-c', 'ulimit -Sn 80; read line; ulimit -Sn'],
        {
          process,
        },
      )
      await added.write('\n')
      expect((await added.readAll()).toString()).toBe('80\n')
    }
    await pod.remove('idle')
  })
})
