import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { endChild } from '../../test/support/processes.ts'
import { benchPod } from '../support/bench-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { execTrue } from '../support/runtime-pair.ts'

/**
 * The time of Health.Check while 50 containers at once go through their lives, against an idle agent. The same measure of a
 * bare echo server shows the machine's share. A ratio of 3 stays below 2 ms.
 */
const ROUNDS = 3
const CONTAINERS = 50
const IDLE_MS = 2000

const folder = makeTemporaryFolder(tmpdir())
const barePath = join(folder, 'bare.sock')
const BARE_SERVER = `
require('node:net').createServer((socket) => socket.pipe(socket)).listen(process.argv[1], () => console.log('listening'))
`
const bareServer = spawn(process.execPath, ['-e', BARE_SERVER, barePath], {
  stdio: ['ignore', 'pipe', 'inherit'],
  env: benchEnvironment(),
})
const pod = await benchPod()
try {
  await once(bareServer.stdout, 'data')
  await measure(pod)
} finally {
  await endChild(bareServer)
  await pod.stop()
  removeTemporaryFolder(folder)
}

async function measure(pod: AgentPod): Promise<void> {
  const idle: Samples = { agent: [], bare: [] }
  const loaded: Samples = { agent: [], bare: [] }
  await load(pod)
  for (let round = 0; round < ROUNDS; round++) {
    await probeDuring(idle, sleep(IDLE_MS))
    await probeDuring(loaded, load(pod))
  }
  const at = (part: number, samples: readonly number[]) =>
    samples.toSorted((a, b) => a - b)[Math.floor(part * samples.length)] ?? Number.NaN
  const phases = {
    idleP99: at(0.99, idle.agent),
    loadedP99: at(0.99, loaded.agent),
    bareIdle: median(idle.bare),
    bareLoaded: median(loaded.bare),
    bareLoadedP99: at(0.99, loaded.bare),
  }
  const figure = { value: median(loaded.agent), floor: median(idle.agent), limit: 3, phases }
  report({ figure: 'Health.Check under load', unit: 'ms', ...figure })
}

interface Samples {
  readonly agent: number[]
  readonly bare: number[]
}

async function probeDuring(samples: Samples, work: Promise<unknown>): Promise<void> {
  const program = join(import.meta.dirname, '../support/prober.ts')
  const prober = spawn(process.execPath, [program, pod.started.path, barePath], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: benchEnvironment(),
  })
  const output = text(prober.stdout)
  await work
  prober.stdin.end()
  const found: Samples = JSON.parse(await output)
  samples.agent.push(...found.agent)
  samples.bare.push(...found.bare)
}

async function load({ agent, run, remove, started }: AgentPod): Promise<void> {
  const poller = await started.connect()
  // The call gets no event and ends with its connection.
  const events = poller.agent.getOOMEvent({}).catch(() => {})
  const lives = Array.from({ length: CONTAINERS }, async (_, number) => {
    const id = `load-${number}`
    await run(id, ['/bin/sleep', '1000000'])
    await Promise.all([execTrue(agent, id, 'true'), agent.statsContainer({ containerId: id })])
    await remove(id)
  })
  await Promise.all(lives)
  poller.close()
  await events
}
