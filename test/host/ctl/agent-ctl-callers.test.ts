import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Recording } from '../../../src/ctl/recording/recording.ts'
import { CreateContainerRequest, SetPolicyRequest } from '../../../src/gen/agent.ts'
import { podWithoutSharedFolder } from '../../recordings/no-shared-folder.ts'
import { recordedRequest } from '../../recordings/recorded-request.ts'
import { recordingNamed } from '../../recordings/recording.ts'
import { recordingText } from '../../recordings/recording-text.ts'
import { recordedRoot, supplyContainer } from '../../recordings/supplies.ts'
import { withoutGuest } from '../../recordings/without-guest.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { inNamespaceOf } from '../../support/host/agent-pod.ts'
import { startAgent } from '../../support/host/agent-process.ts'
import { makeNetworkNamespace } from '../../support/host/network-namespace.ts'
import { noPolicyAddon } from '../../support/os/policy-addon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const AGENT_CTL_LINK = 'eth0 address 02:00:00:00:00:77 type veth peer name p0 address 02:00:00:00:00:78'
const SHIM_LINK = 'nic0 address b6:97:f5:62:37:bf type veth peer name p0'
const POD_LINK = 'nic0 address f2:50:9d:37:a3:45 type veth peer name p0'

const NO_SHARED_FOLDER = 'go-shim.no-shared-fs'
const EVERY_COMMAND = 'agent-ctl.every-command'

const withoutPolicies = (await noPolicyAddon()) !== undefined

/** The two other recordings need a disk and a peer of the guest. */
const RECORDINGS: readonly (readonly [name: string, ...links: readonly string[]])[] = [
  ['go-shim.ctr-run'],
  ['go-shim.exec-tty-pause-metrics'],
  ['go-shim.cri-pod-five-containers', POD_LINK],
  [NO_SHARED_FOLDER, SHIM_LINK],
  ['runtime-rs.ctr-run'],
  ['runtime-rs.exec-tty-pause-metrics'],
  ['runtime-rs.refused-today'],
  ['agent-ctl.full-spec', AGENT_CTL_LINK],
  ...(withoutPolicies ? [] : ([[EVERY_COMMAND, AGENT_CTL_LINK]] as const)),
]

describe('agent-ctl replay of the calls of real callers', () => {
  let folder: string
  let root: string
  let options: Parameters<typeof startAgent>[0]
  beforeAll(() => {
    folder = temporaryFolder()
    root = recordedRoot(folder)
    const { policy } = recordedRequest(SetPolicyRequest, EVERY_COMMAND, 149)
    const file = join(folder, 'policy.rego')
    writeFileSync(file, policy)
    options = { withPolicyEngine: true, environment: { KATA_AGENT_POLICY_FILE: file } }
  })

  /** A program that copies the files of the container on stdin into `target`, the guest's /run. */
  function supplier(recording: Recording, target: string, hasSharedFolder: boolean): string {
    const supplies = temporaryFolder()
    for (const call of recording.lines) {
      if (call.kind !== 'call' || call.method !== 'CreateContainer') continue
      const { OCI } = CreateContainerRequest.decode(call.requestBytes ?? new Uint8Array())
      const own = join(supplies, (OCI?.Root?.Path ?? '').replaceAll('/', '_'))
      supplyContainer(call, root, (path) => join(own, path), hasSharedFolder)
    }
    const own = `${supplies}/$(sed -E 's/.*"Root":\\{"Path":"([^"]*)".*/\\1/' | tr / _)`
    const program = join(supplies, 'supply')
    writeFileSync(program, `#!/bin/sh\nexec cp -a "${own}/run/." ${target}\n`, { mode: 0o755 })
    return program
  }

  // A replay mostly waits, so the replays run concurrently, each on its own agent.
  it.concurrent.each(RECORDINGS)('sees no difference in %s', async (name, ...links) => {
    const recording =
      name === NO_SHARED_FOLDER ? podWithoutSharedFolder() : withoutGuest(recordingNamed(name))
    const network = await makeNetworkNamespace(...links)
    for (const up of links.length > 0 ? ['lo', 'p0'] : ['lo']) network.ip(`link set ${up} up`)
    const started = await startAgent({ ...(name === EVERY_COMMAND && options), network })
    try {
      // The tmpfs hides the machine's memory blocks, so the agent brings none online.
      inNamespaceOf(started, 'mount', '-t', 'tmpfs', 'tmpfs', '/sys/devices/system/memory')
      const prepare = supplier(recording, started.inside('/run'), name !== NO_SHARED_FOLDER)
      const file = join(folder, `${name}.jsonl`)
      writeFileSync(file, recordingText(recording))
      const strict = name.startsWith('agent-ctl.') ? ['--strict'] : []
      expect(
        await ctl([
          '-a',
          `unix://${started.path}`,
          '--wait',
          '60',
          'replay',
          file,
          '--prepare',
          prepare,
          ...strict,
        ]),
      ).toEqual({
        status: 0,
        stderr: '',
        stdout: expect.stringMatching(/: \d+ calls, 0 differences\n$/),
      })
    } finally {
      await started.stop()
      await network.close()
    }
  })
})
