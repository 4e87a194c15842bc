import { expect } from 'vitest'
import type { Pod } from '../containers/pod.ts'

/**
 * Runs a container to its end in a guest's pod, with a process added: its streams, its limit of open files, its name, its
 * status.
 */
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
