import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'

/** Calls over ttRPC through the connection broker, against the same agent that accepts connections itself. */
const ROUNDS = 20
const CHECKS_A_ROUND = 500
const READS = { '32 KiB': { length: 32 << 10, aRound: 128 }, '1 MiB': { length: 1 << 20, aRound: 16 } }

/** One agent and the microseconds of its calls. */
interface Measured {
  readonly pod: AgentPod
  readonly checks: number[]
  readonly reads: Readonly<Record<keyof typeof READS, number[]>>
}

const pods: Measured[] = []
try {
  for (const options of [{}, { withoutBroker: true }]) {
    const pod = await benchPod(options)
    pods.push({ pod, checks: [], reads: { '32 KiB': [], '1 MiB': [] } })
    await pod.run('writer', ['cat', '/dev/zero'])
  }
  await measure()
} finally {
  for (const { pod } of pods) await pod.stop()
}

async function measure(): Promise<void> {
  for (const measured of pods) await round(measured)
  for (const { checks, reads } of pods)
    for (const times of [checks, ...Object.values(reads)]) times.length = 0
  // Alternating, so that other load of the machine affects both.
  for (let count = 0; count < ROUNDS; count++) for (const measured of pods) await round(measured)
  const [brokered, direct] = pods
  if (brokered === undefined || direct === undefined) throw new Error('two agents are compared')
  const figure = (name: string, of: (measured: Measured) => number[], limit: number) =>
    report({ figure: name, unit: 'us', value: median(of(brokered)), floor: median(of(direct)), limit })
  figure('empty call through the broker, ttRPC', ({ checks }) => checks, 1.5)
  figure('ReadStdout of 32 KiB through the broker', ({ reads }) => reads['32 KiB'], 1.15)
  figure('ReadStdout of 1 MiB through the broker', ({ reads }) => reads['1 MiB'], 1.15)
}

async function round({ pod, checks, reads }: Measured): Promise<void> {
  const { agent, health } = pod.started
  for (let call = 0; call < CHECKS_A_ROUND; call++) checks.push(await timedUs(() => health.check({})))
  for (const [name, { length, aRound }] of Object.entries(READS)) {
    const times = name === '1 MiB' ? reads['1 MiB'] : reads['32 KiB']
    const request = { containerId: 'writer', execId: '', len: length }
    for (let call = 0; call < aRound; call++) times.push(await timedUs(() => readWhole(agent, request)))
  }
}

type Agent = AgentPod['started']['agent']

/** As many reads as it takes for so many bytes. */
async function readWhole(agent: Agent, request: { readonly len: number }): Promise<void> {
  for (let left = request.len; left > 0; ) {
    const { data } = await agent.readStdout({ ...request, len: left })
    left -= data.length
  }
}

async function timedUs(call: () => Promise<unknown>): Promise<number> {
  const begin = performance.now()
  await call()
  return (performance.now() - begin) * 1000
}
