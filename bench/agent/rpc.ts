import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { type TtrpcClient, ttrpcClient } from '../../src/rpc/ttrpc/client.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { endChild, processes } from '../../test/support/processes.ts'
import { benchPod, giveAgentPriority } from '../support/bench-pod.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'
import { grpcPeer } from '../support/grpc-peer.ts'
import { cpuMsOf } from '../support/process-figures.ts'

/**
 * Calls over a unix socket, one at a time, against a bare grpc-js server, and a bare ttRPC server in Node behind a C
 * program that copies as the connection broker does. The phases are the CPU time of a call on each side.
 */
const ROUNDS = 20

interface Calls {
  readonly aRound: number
  /** The time of a call is then that of a round, divided by the calls. */
  readonly atOnce: number
  readonly call: () => Promise<unknown>
  readonly pids: readonly number[]
  readonly elapsed: number[]
  /** Microseconds of CPU time for a call: for each process, one value for each round. */
  readonly cpu: readonly number[][]
}

const READS = { '32 KiB': { bytes: 32 << 10, aRound: 128 }, '1 MiB': { bytes: 1 << 20, aRound: 16 } }
const CHECKS_A_ROUND = 512
const AT_ONCE = 32

const folder = makeTemporaryFolder(tmpdir())
const programs: ChildProcess[] = []
const pod = await benchPod()
try {
  await pod.run('writer', ['cat', '/dev/zero'])
  await measure(pod)
} finally {
  for (const program of programs) await endChild(program, 'SIGKILL')
  await pod.stop()
  removeTemporaryFolder(folder)
}

async function measure({ started }: AgentPod): Promise<void> {
  const bareGrpc = await startNode('rpc-bare-server.ts', join(folder, 'grpc.sock'))
  const { client, pids: barePids } = await startRelayedServer()
  const empty = new Uint8Array(0)
  const bare = (bytes: number) => () => client.call('bare', String(bytes), empty)
  const agentPids = [started.agentPid(), brokerOf(started.vminitPid)]
  const [grpc, ownGrpc] = [grpcPeer(join(folder, 'grpc.sock')), grpcPeer(started.path)]

  const floors = {
    grpc: calls(CHECKS_A_ROUND, [bareGrpc], () => grpc.call()),
    empty: calls(CHECKS_A_ROUND, barePids, bare(0)),
    many: calls(CHECKS_A_ROUND, barePids, bare(0), AT_ONCE),
    '32 KiB': calls(READS['32 KiB'].aRound, barePids, bare(READS['32 KiB'].bytes)),
    '1 MiB': calls(READS['1 MiB'].aRound, barePids, bare(READS['1 MiB'].bytes)),
  }
  const values = {
    grpc: calls(CHECKS_A_ROUND, agentPids, () => ownGrpc.call()),
    empty: calls(CHECKS_A_ROUND, agentPids, () => started.health.check({})),
    many: calls(CHECKS_A_ROUND, agentPids, () => started.health.check({}), AT_ONCE),
    '32 KiB': calls(READS['32 KiB'].aRound, agentPids, () => readWhole(started.agent, READS['32 KiB'].bytes)),
    '1 MiB': calls(READS['1 MiB'].aRound, agentPids, () => readWhole(started.agent, READS['1 MiB'].bytes)),
  }
  // V8 has compiled all that an empty call needs after some 10,000 calls; calls one at a time seldom come that far.
  for (let count = -ROUNDS; count < ROUNDS; count++) {
    for (const each of [...Object.values(floors), ...Object.values(values)]) {
      if (count >= -1 || each.atOnce > 1) await round(each, count < 0)
    }
  }
  for (const peer of [grpc, ownGrpc, client]) peer.close()
  const figure = (name: string, value: Calls, floor: Calls, limit: number) => {
    const [agentCpu = 0, brokerCpu = 0] = value.cpu.map(median)
    const [bareCpu = 0, relayCpu = 0] = floor.cpu.map(median)
    const phases = { agentCpu, brokerCpu, bareCpu, relayCpu }
    report({
      figure: name,
      unit: 'us',
      value: median(value.elapsed),
      floor: median(floor.elapsed),
      limit,
      phases,
    })
  }
  figure('empty call, gRPC', values.grpc, floors.grpc, 1.3)
  figure('empty call, ttRPC, to bare grpc-js', values.empty, floors.grpc, 0.6)
  figure('empty call, ttRPC', values.empty, floors.empty, 1.5)
  figure(`empty call, ttRPC, ${AT_ONCE} at once`, values.many, floors.many, 1.25)
  // 1.15 times the last figures of an agent that accepted connections itself (docs/decisions/connection-broker.md).
  figure('ReadStdout of 32 KiB', values['32 KiB'], floors['32 KiB'], 2.6)
  figure('ReadStdout of 1 MiB', values['1 MiB'], floors['1 MiB'], 1.2)
}

async function start(program: string, args: readonly string[]): Promise<number> {
  const child = spawn(program, args, { env: benchEnvironment(), stdio: ['ignore', 'pipe', 'inherit'] })
  programs.push(child)
  await once(child.stdout, 'data')
  const { pid } = child
  if (pid === undefined) throw new Error(`${program} could not be started`)
  giveAgentPriority(pid)
  return pid
}

function startNode(script: string, ...args: readonly string[]): Promise<number> {
  return start(process.execPath, [join(import.meta.dirname, '../support', script), ...args])
}

async function startRelayedServer(): Promise<{ client: TtrpcClient; pids: readonly number[] }> {
  const own = join(folder, 'bare.sock')
  const relayed = join(folder, 'relayed.sock')
  const program = join(folder, 'relay')
  const sizes = Object.values(READS).map(({ bytes }) => String(bytes))
  const server = await startNode('ttrpc-bare-server.ts', own, ...sizes)
  execFileSync('cc', ['-O2', '-o', program, join(import.meta.dirname, '../support/relay.c')])
  const relay = await start(program, [relayed, own])
  const socket = connect(relayed)
  await once(socket, 'connect')
  return { client: ttrpcClient(socket), pids: [server, relay] }
}

function brokerOf(vminit: number): number {
  const broker = processes().find(({ name, parent }) => name === 'api-broker' && parent === vminit)
  if (broker === undefined) throw new Error('vminit has no broker')
  return broker.pid
}

function calls(aRound: number, pids: readonly number[], call: () => Promise<unknown>, atOnce = 1): Calls {
  return { aRound, atOnce, call, pids, elapsed: [], cpu: pids.map(() => []) }
}

async function round({ aRound, atOnce, call, pids, elapsed, cpu }: Calls, isWarmUp: boolean): Promise<void> {
  const before = pids.map(cpuMsOf)
  const begin = performance.now()
  const caller = async (calls: number) => {
    for (let made = 0; made < calls; made++) {
      const start = performance.now()
      await call()
      if (!isWarmUp && atOnce === 1) elapsed.push((performance.now() - start) * 1000)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, () => caller(aRound / atOnce)))
  if (!isWarmUp && atOnce > 1) elapsed.push(((performance.now() - begin) * 1000) / aRound)
  if (isWarmUp) return
  pids.forEach((pid, index) => {
    cpu[index]?.push(((cpuMsOf(pid) - (before[index] ?? 0)) * 1000) / aRound)
  })
}

async function readWhole(agent: AgentPod['started']['agent'], length: number): Promise<void> {
  for (let left = length; left > 0; ) {
    const { data } = await agent.readStdout({ containerId: 'writer', execId: '', len: left })
    left -= data.length
  }
}
