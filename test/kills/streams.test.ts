import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RemoteProcess } from '../support/containers/pod.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../support/host/agent-pod.ts'
import { type HostPorts, makeHostPorts } from '../support/host/host-ports.ts'
import { Killer } from '../support/kills/killer.ts'
import { AS_LONG_AS_ASKED_MS, oneRun, randomOf, shareOf, Tally } from '../support/kills/share.ts'

const CONTAINERS = 20
const WAYS = ['pipe', 'terminal', 'port', 'terminal by port'] as const

const share = shareOf('kills')
const kills = Math.ceil(share / 10)

/** Prints numbered lines slowly enough that the agent dies many times meanwhile. */
function script(lines: number, status: number): string {
  return `i=0; while [ $i -lt ${lines} ]; do echo "line $i of many"; i=$((i+1)); [ $((i%20)) != 0 ] || sleep 0.1; done; exit ${status}`
}

describe.skipIf(share === 0)('twenty containers whose agent is killed at random moments', () => {
  let host: HostPorts
  let pod: AgentPod
  beforeAll(async () => {
    host = makeHostPorts()
    pod = await startPod({ settings: host.settings })
  })
  afterAll(async () => {
    await pod?.stop()
    host?.remove()
  })

  async function start(index: number, lines: number) {
    const way = WAYS[index % WAYS.length] ?? 'pipe'
    const port = 100 + index
    const [terminal, byPort] = [way.startsWith('terminal'), way.endsWith('port')]
    const connection = byPort ? await host.listen(port) : undefined
    const ports = terminal ? { stdinPort: port, stdoutPort: port } : { stdoutPort: port }
    const init: RemoteProcess = await pod.run(`s${index}`, ['sh', '-c', script(lines, index + 1)], {
      terminal,
      ...(byPort && { ports }),
    })
    const output = connection?.all() ?? init.readAll()
    return { way, init, output, status: index + 1 }
  }

  it('lose and repeat no line and no exit status', { timeout: AS_LONG_AS_ASKED_MS }, async () => {
    const random = randomOf('streams')
    const tally = new Tally('20 containers with numbered lines')
    const lines = 600
    const expected = Array.from({ length: lines }, (_, line) => `line ${line} of many`)
    const numbers = Array.from({ length: CONTAINERS }, (_, index) => index)
    while (tally.kills < kills) {
      const killer = new Killer(pod.started, random)
      const follow = async (index: number) => {
        const { way, init, output, status } = await start(index, lines)
        const text = (await output).toString().replaceAll('\r', '')
        const got = text.split('\n').slice(0, -1)
        const bad = got.findIndex((line, index) => line !== expected[index])
        return {
          way,
          lines: got.length,
          bad: bad < 0 ? 'none' : got[bad],
          isRight: (await init.wait()) === status,
        }
      }
      const reading = Promise.all(numbers.map(follow))
      const seen = await oneRun('containers', pod.started, reading).finally(() => killer.stop())
      tally.add(killer.kills)
      expect(seen).toEqual(
        numbers.map((index) => ({ way: WAYS[index % WAYS.length], lines, bad: 'none', isRight: true })),
      )
      const ids = numbers.map((index) => `s${index}`)
      for (const id of ids) await pod.remove(id)
      await expect.poll(() => leftoversOf(pod.started, ...ids)).toEqual(NOTHING_LEFT)
    }
    tally.end()
  })
})
