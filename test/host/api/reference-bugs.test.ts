import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { DeepPartial, Linux } from '../../../src/gen/oci.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, cgroupFile, startPod } from '../../support/host/agent-pod.ts'

const MIB = 1n << 20n

let pod: AgentPod

const setting = (controller: string, id: string, name: string) =>
  cgroupFile(pod.started, controller, id, name).trim()

// Bugs of the reference agent that only a real runtime can show (docs/reference/compatibility.md).
describe('a container with what another agent gets wrong', () => {
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  async function run(id: string, script: string, linux: DeepPartial<Linux>): Promise<RemoteProcess> {
    return pod.run(id, ['sh', '-c', script], { linux })
  }

  it('lifts a memory limit by -1', async () => {
    const Memory = { Limit: 64n * MIB, Swap: 64n * MIB }
    await run('lifted', 'sleep 1000', { Resources: { Memory } })
    expect(setting('memory', 'lifted', 'limit_in_bytes')).toBe(String(64n * MIB))
    await pod.agent.updateContainer({
      containerId: 'lifted',
      resources: { Memory: { Limit: -1n, Swap: -1n } },
    })
    // The kernel's page counters have a maximum below 2^63.
    expect(BigInt(setting('memory', 'lifted', 'limit_in_bytes'))).toBeGreaterThan(1n << 62n)
    await pod.remove('lifted')
  })

  it.each([
    [9n, '9'],
    [0n, 'max'],
  ])('limits processes: %d means %s', async (Limit, max) => {
    await run('counted', 'sleep 1000', { Resources: { Pids: { Limit } } })
    expect(setting('pids', 'counted', 'max')).toBe(max)
    await pod.remove('counted')
  })

  // runtime-rs and agent-ctl send 0 with every rule without a number.
  it.each([
    ['no number', {}, 'Operation not permitted'],
    ['0', { errnoret: 0 }, 'Operation not permitted'],
    ['38', { errnoret: 38 }, 'Function not implemented'],
  ])(
    'refuses a system call with EPERM unless another number is asked for: %s',
    async (_what, errno, text) => {
      const denied = await run('denied', 'mkdir /tmp/refused; echo $?; ls -d /tmp/refused', {
        Seccomp: {
          DefaultAction: 'SCMP_ACT_ALLOW',
          Syscalls: [{ Names: ['mkdir', 'mkdirat'], Action: 'SCMP_ACT_ERRNO', ...errno }],
        },
      })
      expect((await denied.readAll('stderr')).toString()).toContain(text)
      expect((await denied.readAll()).toString()).toBe('1\n')
      await pod.remove('denied')
    },
  )
})
