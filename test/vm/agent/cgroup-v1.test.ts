import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { expectStopBySignal } from '../../support/vm/stop-by-signal.ts'

const GUEST_CGROUPS = bind('/sys/fs/cgroup', '/guest/cgroup')

describe.skipIf(cannotBoot() !== undefined)('an agent that is asked for cgroup v1 on Linux 6.12', () => {
  it('has cgroup v2 with the limit of all containers, and warns', async () => {
    const { guest, pod } = await bootPod({ append: ['systemd.unified_cgroup_hierarchy=0'] })
    try {
      await consoleLine(guest, /"cgroup v1 requested, but it lacks controllers: using v2".*"controllers":"/)
      const path = '/guest/cgroup/containers/memory.max'
      expect(await pod.output('limit', `cat ${path}`, { mounts: [GUEST_CGROUPS] })).toMatch(/^\d+$/m)
    } finally {
      await guest.stop()
    }
  })
})

describe.skipIf(cannotBoot() !== undefined)(
  'an agent with systemd.unified_cgroup_hierarchy=0 on Linux 6.1',
  () => {
    let guest: TestGuest
    let pod: Pod
    beforeAll(async () => {
      ;({ guest, pod } = await bootPod({
        kernel: 'bookworm',
        append: ['systemd.unified_cgroup_hierarchy=0', 'agent.mem_agent_enable'],
      }))
    })
    afterAll(() => guest?.stop())

    it('mounts one hierarchy for each controller, on a root that cannot be written', async () => {
      const text = await pod.output('look', 'grep /sys/fs/cgroup /guest/proc/1/mounts', {
        mounts: [GUEST_PROC],
      })
      const mounts = text
        .trim()
        .split('\n')
        .map((line) => line.split(' '))
      const ofType = (wanted: string) => mounts.filter(([, , type]) => type === wanted)
      expect(ofType('tmpfs')).toEqual([
        expect.arrayContaining(['/sys/fs/cgroup', expect.stringMatching(/^ro,/)]),
      ])
      const controllers = ofType('cgroup').map(([, path = '']) => path.slice('/sys/fs/cgroup/'.length))
      const needed = ['cpu', 'cpuacct', 'cpuset', 'devices', 'freezer', 'memory', 'pids']
      expect(controllers).toEqual(expect.arrayContaining(needed))
      expect(ofType('cgroup2')).toEqual([])
    })

    it('puts a container into each hierarchy, and removes its cgroups with it', async () => {
      const paths = await pod.output('inside', 'grep -E ":(memory|pids|devices|freezer):" /proc/self/cgroup')
      expect(
        paths
          .trim()
          .split('\n')
          .map((line) => line.split(':')[2]),
      ).toEqual(Array(4).fill('/containers/inside'))
      const left = await pod.output('left', 'find /guest/cgroup -type d -name inside', {
        mounts: [GUEST_CGROUPS],
      })
      expect(left).toBe('')
    })

    it('has one cgroup of all containers, whose limit leaves a reserve of memory', async () => {
      const script =
        'cat /guest/cgroup/memory/containers/memory.limit_in_bytes; grep MemTotal /guest/proc/meminfo'
      const text = await pod.output('look', script, { mounts: [GUEST_CGROUPS, GUEST_PROC] })
      const [limit = Number.NaN, totalKib = Number.NaN] = text.match(/\d+/g)?.map(Number) ?? []
      expect(limit).toBeGreaterThan(0.5 * totalKib * 1024)
      expect(limit).toBeLessThan((totalKib - 50 * 1024) * 1024)
    })

    it('kills all processes of a container, orphans too', async () => {
      const init = await pod.run('killed', ['sh', '-c', '(sleep 1000 &); echo ready; sleep 1000'])
      await init.readUntil('ready')
      const added = await pod.add('killed', 'e', ['sleep', '1000'])
      await guest.agent.signalProcess({ containerId: 'killed', signal: 9 })
      expect(await Promise.all([init.wait(), added.wait()])).toEqual([137, 137])
      await pod.remove('killed')
    })

    it('has compaction, but no reclaim of memory, which the agent logs once', async () => {
      const message = 'mem-agent: the guest uses cgroup v1, want cgroup v2 for reclaim'
      await consoleLine(guest, new RegExp(`"settings without effect".*"mem_agent_memcg_\\*".*"${message}"`))
      const setting = pod.agent.memAgentMemcgSet({ swap: false })
      await expect(setting).rejects.toMatchObject({ code: 'FAILED_PRECONDITION', message })
      await pod.agent.memAgentCompactSet({ compactOrder: 10 })
    })

    it('ends with the guest that SIGINT to PID 1 stops', () => expectStopBySignal('INT', guest, pod))
  },
)
