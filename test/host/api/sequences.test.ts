import { connect } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { REPLAYS, type Replay } from '../../sequences/all.ts'
import { NIC } from '../../sequences/network.ts'
import { replay } from '../../sequences/replay.ts'
import type { Ending, Sequence } from '../../sequences/sequence.ts'
import { say } from '../../sequences/summary.ts'
import { dialWire } from '../../sequences/wires.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { cgroupsOf, inNamespaceOf, killWithState } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { type Forward, forward } from '../../support/rpc/forward.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the calls of known callers, replayed on an agent that is a process', () => {
  let folder: string
  let root: string
  let started: AgentProcess
  let network: NetworkNamespace
  let way: Forward
  beforeAll(() => {
    folder = temporaryFolder()
    root = busyboxRoot(folder)
  })

  beforeEach(async () => {
    // The calls name interfaces. In a separate network namespace they cannot find those of the machine.
    network = await makeNetworkNamespace(`nic0 address ${NIC.mac} type veth peer name nic1`)
    started = await startAgent({ network })
    // The tmpfs hides the machine's memory blocks, so the agent brings none online.
    inNamespaceOf(started, 'mount', '-t', 'tmpfs', 'tmpfs', '/sys/devices/system/memory')
    way = await forward(join(folder, 'agent.sock'), async () => connect(started.path))
  })
  afterEach(async () => {
    way.close()
    await started.stop()
    await network.close()
  })

  async function share(path: string): Promise<void> {
    inNamespaceOf(started, 'mkdir', '-p', path)
    inNamespaceOf(started, 'mount', '--bind', root, path)
  }

  async function play({ sequenceIn, framing }: Replay, ending: Ending): Promise<Sequence> {
    const sequence = sequenceIn({ isGuest: false }, ending)
    const killAgent = async () => {
      killWithState(started)
      await started.logged({ msg: 'agent restarted: sandbox lost' })
    }
    const reports = await replay(sequence, { dial: () => dialWire(way, framing, sequence), share, killAgent })
    say(`${sequence.caller} over ${framing}, on a process, to its ${ending}`, reports)
    return sequence
  }

  it.each(REPLAYS)('$caller over $framing, to DestroySandbox', async (one) => {
    const { containers, sharedCgroups } = await play(one, 'DestroySandbox')
    expect(await started.exited).toBe(0)
    expect(started.log.at(-1)).toMatchObject({ msg: 'stopped', status: '0' })
    const paths = ['', ...sharedCgroups].flatMap((path) => containers.map((id) => `${path}/${id}`))
    expect([...paths, ...sharedCgroups].flatMap((id) => cgroupsOf(id, started))).toEqual([])
  })

  it.each(REPLAYS)('$caller over $framing, to the death of the agent', async (one) => {
    const { sharedCgroups } = await play(one, 'dead agent')
    expect(sharedCgroups.flatMap((id) => cgroupsOf(id, started))).toEqual([])
  })
})
