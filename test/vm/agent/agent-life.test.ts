import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { type Pod, podOf } from '../../support/containers/pod.ts'
import { parseLogLine } from '../../support/log-lines.ts'
import { bootTestGuest, CRUN, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { consoleLine, createPod, GUEST_PROC, ROOT } from '../../support/vm/guest-pod.ts'

describe.skipIf(cannotBoot() !== undefined)('a guest whose processes are all killed but the first', () => {
  let guest: TestGuest
  let connection: TtrpcClient
  let pod: Pod
  beforeAll(async () => {
    guest = await bootTestGuest({ append: [CRUN] })
    connection = guest.guest.connection
    pod = await createPod(guest.agent, guest.rootSource)
  })
  afterAll(() => guest?.stop())

  /** Kills every process but PID 1; the agent may die before it has answered the start. */
  async function killAll(): Promise<void> {
    const killer = ['sh', '-c', 'echo i > /guest/proc/sysrq-trigger']
    await pod.create('killer', killer, { mounts: [GUEST_PROC] })
    await pod.agent.startContainer({ containerId: 'killer' }).catch(() => {})
  }

  async function reconnect(number: number): Promise<void> {
    await consoleLine(guest, new RegExp(`vminit: the agent was killed by signal 9: restart ${number} in`))
    await connection.closed
    connection = await connectAgent(guest.guest, guest.guest.vm.gone)
  }

  it('restarts its agent, which knows how the containers have ended, and runs others', async () => {
    await pod.run('before', ['sleep', '1000'])
    await killAll()
    await reconnect(1)
    const agent = agentOf(connection)
    const line = await consoleLine(guest, /agent restarted: sandbox restored/)
    expect(parseLogLine(line)).toMatchObject({ level: 'WARN', sandbox: 'pod', containers: '2' })
    pod = podOf(agent, pod.root)
    for (const containerId of ['before', 'killer']) {
      expect(await agent.waitProcess({ containerId })).toEqual({ status: 137 })
      await pod.remove(containerId)
    }
    // The second boot mounted nothing again.
    expect(
      guest.guest.vm.console.lines.filter((text) => /"step":"mounts".*"already"/.test(text)),
    ).toHaveLength(1)
    expect(await pod.output('before', 'echo again')).toBe('again\n')
    const looks = { mounts: [GUEST_PROC] }
    const mounts = await pod.output('look', 'cut -d " " -f 5 /guest/proc/1/mountinfo | sort', looks)
    const points = mounts.trim().split('\n')
    expect(points).toEqual([...new Set(points)])
    expect(points.filter((path) => path.includes('/before'))).toEqual([])
  })

  it('powers itself off with a reason when its agent dies too often', async () => {
    // Each next agent fails at once, so five restarts take seconds on any machine.
    const spoil = `${ROOT}/bin/busybox mount --bind /dev/null /usr/lib/microvm-agent/node`
    const script = `nsenter --mount=/guest/proc/1/ns/mnt ${spoil} && echo i > /guest/proc/sysrq-trigger`
    await pod.create('spoiler', ['sh', '-c', script], {
      mounts: [GUEST_PROC],
      capabilities: ['CAP_SYS_ADMIN', 'CAP_SYS_CHROOT', 'CAP_SYS_PTRACE'],
    })
    await pod.agent.startContainer({ containerId: 'spoiler' }).catch(() => {})
    expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    const text = guest.consoleText()
    expect(text).toContain('vminit: cannot run /usr/lib/microvm-agent/node: Permission denied')
    expect(text).toMatch(/vminit: the agent exited with status \d+, after 5 restarts within 60 s: giving up/)
    expect(text).toContain('vminit: powering off')
  })
})
