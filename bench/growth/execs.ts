import { median } from '../support/figure.ts'
import { elapsedMs, execTrue, withRuntime } from '../support/runtime-pair.ts'

const COUNTS = [1, 2, 5, 10, 20, 50, 100, 200]
const ROUNDS = 3

/** How long so many processes take that are added to one container at once. */
export async function execs() {
  const [runc, crun] = [await timesOf('runc'), await timesOf('crun')]
  return {
    title: 'Processes added at once',
    text: 'The time until `true` has ended in all of them, with the agent, and with the bare runtime one after the other.',
    columns: ['processes', 'runc, ms', 'bare runc, ms', 'crun, ms', 'bare crun, ms'],
    rows: COUNTS.map((count, index) => [count, ...(runc[index] ?? []), ...(crun[index] ?? [])]),
  }
}

function timesOf(kind: 'runc' | 'crun'): Promise<readonly (readonly number[])[]> {
  return withRuntime(kind, async ({ pod, bare }) => {
    await bare.start('bare', ['/bin/sleep', '1000000'])
    const times: number[][] = []
    for (const count of COUNTS) {
      const [agent, floor]: [number[], number[]] = [[], []]
      for (let round = 0; round < ROUNDS; round += 1) {
        const ids = Array.from({ length: count }, (_, number) => `true-${count}-${round}-${number}`)
        agent.push(await elapsedMs(() => Promise.all(ids.map((id) => execTrue(pod.agent, 'model', id)))))
        let sum = 0
        for (const _ of ids) sum += await bare.execTrue('bare')
        floor.push(sum)
      }
      times.push([median(agent), median(floor)])
    }
    await bare.remove('bare')
    return times
  })
}
