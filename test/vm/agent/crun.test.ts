import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { REQUESTS } from '../../../src/gen/message-fields.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { noPolicyAddon, policyOf } from '../../support/os/policy-addon.ts'
import { DENIED_SOCKETS, startAttempts, VSOCK_ALLOWED } from '../../support/programs/vsock-attempts.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { expectContainerLife } from '../../support/vm/container-life.ts'
import { expectAddedProcessesIn } from '../../support/vm/divided-cgroup.ts'
import { bootPod, consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'

const canCheck = (await noPolicyAddon()) === undefined
/** The policy that `npm run image -- --policy` builds into the image allows all calls but one. */
const OF_IMAGE = policyOf(
  [...new Set(Object.values(REQUESTS))]
    .map((message) => message.slice(message.lastIndexOf('.') + 1))
    .map((rule) => `default ${rule} := ${rule !== 'GetMetricsRequest'}\n`)
    .join(''),
)

describe.skipIf(cannotBoot() !== undefined)('an agent with agent.runtime=crun', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    ;({ guest, pod } = await bootPod({
      append: ['agent.runtime=crun'],
      policy: canCheck && { text: OF_IMAGE },
    }))
  })
  afterAll(() => guest?.stop())

  it('creates containers with crun', async () => {
    // The program in a created container belongs to the runtime and identifies it.
    const request = { containerId: 'unstarted' }
    const look = await pod.run('look', ['sh', '-c', 'read line; cat /guest/proc/[0-9]*/comm'], {
      mounts: [GUEST_PROC],
    })
    await pod.create('unstarted', ['sleep', '1000'])
    await look.write('\n')
    const programs = (await look.readAll()).toString().split('\n')
    expect(programs.some((name) => name.startsWith('crun'))).toBe(true)
    expect(programs.some((name) => name.startsWith('runc'))).toBe(false)
    await guest.agent.startContainer(request)
    for (const id of ['look', 'unstarted']) await pod.remove(id)
  })

  it('keeps stdout and stderr apart, returns the status, and adds processes', async () => {
    await expectContainerLife(pod)
  })

  it('takes every version, and the flags of seccomp that crun knows', async () => {
    const flags = ['TSYNC', 'SPEC_ALLOW', 'LOG', 'WAIT_KILLABLE_RECV']
    for (const flag of flags) {
      const Seccomp = { DefaultAction: 'SCMP_ACT_ALLOW', Flags: [`SECCOMP_FILTER_FLAG_${flag}`] }
      const options = { spec: { Version: '1.2.0' }, linux: { Seccomp } }
      expect(await pod.output('flagged', 'echo run', options)).toBe('run\n')
    }
  })

  it('serves a terminal', async () => {
    const init = await pod.run('terminal', ['sh', '-c', 'stty size; read line; stty size'], {
      terminal: true,
    })
    expect(await init.readUntil('\r\n')).toBe('33 77\r\n')
    await init.resize(40, 100)
    await init.write('\n')
    expect((await init.readAll()).toString()).toContain('40 100\r\n')
    await pod.remove('terminal')
  })

  it('denies vsock to containers, except one that the host allows it', async () => {
    const denied = await startAttempts(pod, 'denied')
    expect(await denied('sockets')).toBe(DENIED_SOCKETS)
    const allowed = await startAttempts(pod, 'allowed', { spec: { Annotations: VSOCK_ALLOWED } })
    expect(await allowed('sockets')).toMatch(/^socket OK\n(?:.*\n)*io_uring OK\n/)
    for (const id of ['denied', 'allowed']) await pod.remove(id)
  })

  it('adds processes to the cgroup into which a first process has moved that divides its own', async () => {
    await expectAddedProcessesIn('init.scope', pod)
  })

  it('names the program that was not found', async () => {
    await expect(pod.create('missing', ['nosuch'])).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('the file nosuch was not found'),
    })
  })

  it.skipIf(!canCheck)('enforces the policy of its image', async () => {
    await expect(guest.agent.getMetrics({})).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('GetMetricsRequest is blocked by policy'),
    })
  })

  it.skipIf(!canCheck)('enforces a policy that a call has set also after it has died', async () => {
    const rules = ['CreateContainerRequest', 'StartContainerRequest'].map((name) => `${name} := true\n`)
    await guest.agent.setPolicy({ policy: policyOf(rules.join('')) })
    await expect(guest.agent.listRoutes({})).rejects.toMatchObject({ code: 'INTERNAL' })
    // Kills every process but PID 1; the agent may die before it has answered.
    const killer = ['sh', '-c', 'echo i > /guest/proc/sysrq-trigger']
    await pod.run('killer', killer, { mounts: [GUEST_PROC] }).catch(() => {})
    await consoleLine(guest, /vminit: the agent was killed by signal 9: restart 1 in/)
    const agent = agentOf(await connectAgent(guest.guest, guest.guest.vm.gone))
    await expect(agent.listRoutes({})).rejects.toMatchObject({ code: 'INTERNAL' })
    expect(guest.consoleText()).toContain('policy restored')
  })
})
