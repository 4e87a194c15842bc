import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { bareServers } from '../support/bare/bare-servers.ts'
import { benchPod, brokerOf } from '../support/bench-pod.ts'
import { type Calls, calls, measureCalls } from '../support/call-rounds.ts'
import { median, report } from '../support/figure.ts'
import { grpcPeer } from '../support/grpc-peer.ts'

/**
 * Calls over a unix socket, one at a time, against a bare grpc-js server, and a bare ttRPC server in Node behind a C
 * program that copies as the connection broker does. The phases are the CPU time of a call on each side.
 */
const ROUNDS = 20

const READS = { '32 KiB': { bytes: 32 << 10, aRound: 128 }, '1 MiB': { bytes: 1 << 20, aRound: 16 } }
const CHECKS_A_ROUND = 512
const AT_ONCE = 32

const folder = makeTemporaryFolder(tmpdir())
const servers = bareServers(folder)
const pod = await benchPod()
try {
  await pod.run('writer', ['cat', '/dev/zero'])
  await measure(pod)
} finally {
  await servers.stop()
  await pod.stop()
  removeTemporaryFolder(folder)
}

async function measure({ started }: AgentPod): Promise<void> {
  const bareGrpc = await servers.startNode('rpc-bare-server.ts', join(folder, 'grpc.sock'))
  const { client, pids: barePids } = await servers.startRelayed(
    Object.values(READS).map(({ bytes }) => bytes),
  )
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
  await measureCalls([...Object.values(floors), ...Object.values(values)], ROUNDS)
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

async function readWhole(agent: AgentPod['started']['agent'], length: number): Promise<void> {
  for (let left = length; left > 0; ) {
    const { data } = await agent.readStdout({ containerId: 'writer', execId: '', len: left })
    left -= data.length
  }
}
