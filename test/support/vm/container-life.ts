import { expect } from 'vitest'
import type { Pod } from '../containers/pod.ts'
import { agentKillingHook } from './agent-killer.ts'

export async function expectContainerLife(pod: Pod): Promise<void> {
  const init = await pod.run('life', ['sh', '-c', 'read line; echo out $line; echo err >&2; exit 7'])
  const look = 'ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj; hostname'
  const added = await pod.add('life', 'e', ['sh', '-c', look])
  expect((await added.readAll()).toString()).toBe(`${2 ** 30}\n${2 ** 30}\n0\nvm-pod\n`)
  expect(await added.wait()).toBe(0)
  await init.write('heard\n')
  expect((await init.readAll('stdout')).toString()).toBe('out heard\n')
  expect((await init.readAll('stderr')).toString()).toBe('err\n')
  expect(await init.wait()).toBe(7)
  await pod.remove('life')
}

/** Kills the agent beside a container that prints numbers, and in the middle of another container's start. */
export async function expectToOutliveAgent(pod: Pod): Promise<void> {
  const printed = 200
  const count = `i=0; while [ $i -lt ${printed} ]; do echo $i; i=$((i+1)); usleep 5000; done; read line; exit 7`
  const counter = await pod.run('counter', ['sh', '-c', count])
  const begun = await counter.readUntil('\n')
  const killer = await pod.run('killer', ['sh', '-c', 'exit 3'], {
    spec: { Hooks: { Poststart: [agentKillingHook(pod.root)] } },
  })
  expect(begun + (await counter.readUntil(`\n${printed - 1}\n`))).toBe(
    Array.from({ length: printed }, (_, index) => `${index}\n`).join(''),
  )
  await counter.write('end\n')
  expect([await counter.wait(), await killer.wait()]).toEqual([7, 3])
  await pod.remove('counter')
  await pod.remove('killer')
}
