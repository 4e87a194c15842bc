import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { podWithoutSharedFolder } from '../../recordings/no-shared-folder.ts'
import { type Recording, recordingNamed } from '../../recordings/recording.ts'
import { replay } from '../../recordings/replay.ts'
import { recordedRoot, supplyContainer } from '../../recordings/supplies.ts'
import {
  cgroupsOf,
  inNamespaceOf,
  leftoversOf,
  NOTHING_LEFT,
  removeEmptyCgroups,
} from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Pairs of interfaces: the one that the recorded calls name by its address, and one that gives it a carrier. */
const LINKS = {
  agentCtl: 'eth0 address 02:00:00:00:00:77 type veth peer name p0 address 02:00:00:00:00:78',
  shim: 'nic0 address b6:97:f5:62:37:bf type veth peer name p0',
}

describe('recorded calls that need no shared folder, replayed on an agent that is a process', () => {
  let folder: string
  let root: string
  let started: AgentProcess
  let network: NetworkNamespace
  beforeAll(() => {
    folder = temporaryFolder()
    root = recordedRoot(folder)
  })
  afterEach(async () => {
    await started.stop()
    await network.close()
  })

  /** Replays a recording on a new agent with these interfaces. */
  async function play(recording: Recording, link: string): Promise<void> {
    network = await makeNetworkNamespace(link)
    for (const up of ['lo', 'p0']) network.ip(`link set ${up} up`)
    started = await startAgent({ network })
    // The tmpfs hides the machine's memory blocks, so that the agent brings none of them online. The clock is safe: the
    // recorded time is before the machine's start, which the kernel refuses.
    inNamespaceOf(started, 'mount', '-t', 'tmpfs', 'tmpfs', '/sys/devices/system/memory')
    await replay(recording, {
      dial: async () => {
        const socket = connect(started.path)
        await once(socket, 'connect')
        return socket
      },
      prepare: async (call) => supplyContainer(call, root, started.inside, false),
    })
  }

  // Without a shared folder, each file that a container of the shim mounts is copied.
  it.each([
    {
      ...recordingNamed('agent-ctl.every-command'),
      link: LINKS.agentCtl,
      cgroup: 'test_container_1',
      parents: [],
    },
    { ...podWithoutSharedFolder(), link: LINKS.shim, cgroup: 'k8s.io', parents: ['k8s.io'] },
  ])('$name, to the end of the agent', async ({ link, cgroup, parents, ...recording }) => {
    await play(recording, link)
    expect(await started.exited).toBe(0)
    // The runtime leaves the folder above those of the pod's containers.
    removeEmptyCgroups(parents)
    expect(cgroupsOf(cgroup)).toEqual([])
  })

  it('agent-ctl.full-spec, which leaves an empty sandbox', async () => {
    await play(recordingNamed('agent-ctl.full-spec'), LINKS.agentCtl)
    expect(leftoversOf(started, 'full_container_1')).toEqual(NOTHING_LEFT)
  })
})
