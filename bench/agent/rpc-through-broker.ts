import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, watch } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { endChild, processes } from '../../test/support/processes.ts'
import { benchPod } from '../support/bench-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { grpcPeer, type Peer } from '../support/grpc-peer.ts'
import { cpuMsOf } from '../support/process-figures.ts'

/**
 * Calls over ttRPC through the connection broker, against the same agent that accepts connections itself, and against a
 * bare grpc-js server. The phases are the CPU time of a call: of the agent in both cases, and of the broker.
 */
const ROUNDS = 20
const READS = { length: 32 << 10, aRound: 128 }
const LARGE_READS = { length: 1 << 20, aRound: 16 }
const CHECKS_A_ROUND = 500

type Kind = 'check' | 'read' | 'largeRead'

const KINDS: readonly Kind[] = ['check', 'read', 'largeRead']

/** The microseconds of calls, and of CPUs for each, by their kind. */
type Times = Readonly<Record<Kind, number[]>>

/** One agent and its figures. */
interface Measured {
  readonly pod: AgentPod
  readonly broker: number | undefined
  readonly elapsed: Times
  readonly agentCpu: Times
  readonly brokerCpu: Times
}

const folder = makeTemporaryFolder(tmpdir())
const socket = join(folder, 'bare.sock')
const bareServer = spawn(
  process.execPath,
  [join(import.meta.dirname, '../support/rpc-bare-server.ts'), socket],
  {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: benchEnvironment(),
  },
)
const pods: Measured[] = []
try {
  for (const options of [{}, { withoutBroker: true }]) {
    const pod = await benchPod(options)
    const broker = processes().find(
      ({ name, parent }) => name === 'api-broker' && parent === pod.started.vminitPid,
    )
    const hasBroker = !('withoutBroker' in options)
    pods.push({
      ...{ pod, broker: hasBroker ? broker?.pid : undefined },
      ...{ elapsed: noTimes(), agentCpu: noTimes(), brokerCpu: noTimes() },
    })
    await pod.run('writer', ['cat', '/dev/zero'])
  }
  await appeared()
  await measure(grpcPeer(socket))
} finally {
  for (const { pod } of pods) await pod.stop()
  await endChild(bareServer, 'SIGKILL')
  removeTemporaryFolder(folder)
}

function noTimes(): Times {
  return { check: [], read: [], largeRead: [] }
}

async function appeared(): Promise<void> {
  const watcher = watch(folder)
  if (!existsSync(socket)) await once(watcher, 'change')
  watcher.close()
}

async function measure(bare: Peer): Promise<void> {
  const bareTimes: number[] = []
  // The first round only warms up. Alternating, so that other load of the machine affects all.
  for (let count = 0; count <= ROUNDS; count++) {
    for (const measured of pods) await round(measured)
    for (let call = 0; call < CHECKS_A_ROUND; call++) bareTimes.push(await timedUs(() => bare.call()))
    if (count > 0) continue
    for (const { elapsed, agentCpu, brokerCpu } of pods)
      for (const times of [elapsed, agentCpu, brokerCpu]) for (const kind of KINDS) times[kind].length = 0
    bareTimes.length = 0
  }
  bare.close()
  const [brokered, direct] = pods
  if (brokered === undefined || direct === undefined) throw new Error('two agents are compared')
  const figure = (name: string, kind: Kind, limit: number) => {
    const phases = {
      agentCpu: median(brokered.agentCpu[kind]),
      brokerCpu: median(brokered.brokerCpu[kind]),
      directCpu: median(direct.agentCpu[kind]),
    }
    const value = median(brokered.elapsed[kind])
    report({ figure: name, unit: 'us', value, floor: median(direct.elapsed[kind]), limit, phases })
  }
  figure('empty call through the broker, ttRPC', 'check', 1.5)
  const floor = median(bareTimes)
  const value = median(brokered.elapsed.check)
  report({ figure: 'empty call through the broker, to bare grpc-js', unit: 'us', value, floor, limit: 0.6 })
  figure('ReadStdout of 32 KiB through the broker', 'read', 1.15)
  figure('ReadStdout of 1 MiB through the broker', 'largeRead', 1.15)
}

async function round(measured: Measured): Promise<void> {
  const { agent, health } = measured.pod.started
  await calls(measured, 'check', CHECKS_A_ROUND, () => health.check({}))
  await calls(measured, 'read', READS.aRound, () => readWhole(agent, READS.length))
  await calls(measured, 'largeRead', LARGE_READS.aRound, () => readWhole(agent, LARGE_READS.length))
}

async function calls(
  { pod, broker, elapsed, agentCpu, brokerCpu }: Measured,
  kind: Kind,
  count: number,
  call: () => Promise<unknown>,
): Promise<void> {
  const cpuMs = () => [cpuMsOf(pod.started.agentPid()), broker === undefined ? 0 : cpuMsOf(broker)] as const
  const [agentBefore, brokerBefore] = cpuMs()
  for (let made = 0; made < count; made++) elapsed[kind].push(await timedUs(call))
  const [agentAfter, brokerAfter] = cpuMs()
  agentCpu[kind].push(((agentAfter - agentBefore) * 1000) / count)
  brokerCpu[kind].push(((brokerAfter - brokerBefore) * 1000) / count)
}

type Agent = AgentPod['started']['agent']

/** Reads until it has this many bytes. */
async function readWhole(agent: Agent, length: number): Promise<void> {
  for (let left = length; left > 0; ) {
    const { data } = await agent.readStdout({ containerId: 'writer', execId: '', len: left })
    left -= data.length
  }
}

async function timedUs(call: () => Promise<unknown>): Promise<number> {
  const begin = performance.now()
  await call()
  return (performance.now() - begin) * 1000
}
