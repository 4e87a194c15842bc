import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Recording } from '../../../src/ctl/recording/recording.ts'
import { SetPolicyRequest } from '../../../src/gen/agent.ts'
import { podWithoutSharedFolder } from '../../recordings/no-shared-folder.ts'
import { recordedRequest } from '../../recordings/recorded-request.ts'
import { recordingNamed } from '../../recordings/recording.ts'
import { replay } from '../../recordings/replay.ts'
import { recordedRoot, supplyContainer } from '../../recordings/supplies.ts'
import { cgroupsOf, inNamespaceOf, leftoversOf, NOTHING_LEFT } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { noPolicyAddon } from '../../support/os/policy-addon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Pairs of interfaces: the recorded calls name the first by its address; the second gives it a carrier. */
const LINKS = {
  agentCtl: 'eth0 address 02:00:00:00:00:77 type veth peer name p0 address 02:00:00:00:00:78',
  shim: 'nic0 address b6:97:f5:62:37:bf type veth peer name p0',
}

const withoutPolicies = (await noPolicyAddon()) !== undefined

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

  async function play(
    recording: Recording,
    link: string,
    options: Parameters<typeof startAgent>[0] = {},
  ): Promise<void> {
    network = await makeNetworkNamespace(link)
    for (const up of ['lo', 'p0']) network.ip(`link set ${up} up`)
    started = await startAgent({ network, ...options })
    // The tmpfs hides the machine's memory blocks, so the agent brings none online. The clock is safe: the recorded time is
    // before the machine's start, which the kernel refuses.
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

  it.skipIf(withoutPolicies)(
    'agent-ctl.every-command under its own policy, to the end of the agent',
    async () => {
      const { policy } = recordedRequest(SetPolicyRequest, 'agent-ctl.every-command', 149)
      const file = join(folder, 'policy.rego')
      writeFileSync(file, policy)
      const environment = { KATA_AGENT_POLICY_FILE: file }
      const options = { withPolicyEngine: true, environment }
      await play(recordingNamed('agent-ctl.every-command'), LINKS.agentCtl, options)
      expect(await started.exited).toBe(0)
      expect(cgroupsOf('test_container_1', started)).toEqual([])
    },
  )

  // Without a shared folder, each file that a container of the shim mounts is copied.
  it('go-shim.no-shared-fs and the rest of a pod, to the end of the agent', async () => {
    await play(podWithoutSharedFolder(), LINKS.shim)
    expect(await started.exited).toBe(0)
    expect(cgroupsOf('k8s.io', started)).toEqual([])
  })

  it('agent-ctl.full-spec, which leaves an empty sandbox', async () => {
    await play(recordingNamed('agent-ctl.full-spec'), LINKS.agentCtl)
    expect(leftoversOf(started, 'full_container_1')).toEqual(NOTHING_LEFT)
  })
})
