import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { bind } from '../../support/containers/container-requests.ts'
import { BOMB_OWNER, bombLinux, explosion, FORK_BOMB } from '../../support/containers/fork-bomb.ts'
import type { Pod, RemoteProcess } from '../../support/containers/pod.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { expectAddedProcessesIn } from '../../support/vm/divided-cgroup.ts'
import { bootPod, consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { expectStopBySignal } from '../../support/vm/stop-by-signal.ts'

const LIMIT = 32n << 20n
const BOMB_LIMIT = 40n
const HOG = 'dd if=/dev/zero of=/dev/null bs=64M count=1'

describe.skipIf(cannotBoot() !== undefined)('the cgroup of a container on v2', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    // The tests of reclaim and compaction turn them on.
    const append = ['enable', 'memcg_disable=1', 'compact_disable=1'].map((key) => `agent.mem_agent_${key}`)
    ;({ guest, pod } = await bootPod({ append }))
  })
  afterAll(() => guest?.stop())

  async function run(id: string, script: string): Promise<RemoteProcess> {
    const linux = { Resources: { Memory: { Limit: LIMIT, Swap: LIMIT }, Pids: { Limit: 50n } } }
    return pod.run(id, ['sh', '-c', script], { linux })
  }

  function filesOf(id: string, ...names: readonly string[]): Promise<string> {
    const paths = names.map((name) => `/guest/cgroup/containers/${id}/${name}`).join(' ')
    return pod.output(`look-${id}`, `cat ${paths}`, { mounts: [bind('/sys/fs/cgroup', '/guest/cgroup')] })
  }

  async function filePagesOf(containerId: string): Promise<bigint> {
    const { cgroupStats } = await pod.agent.statsContainer({ containerId })
    const { inactive_file = 0n, active_file = 0n } = cgroupStats?.memoryStats?.stats ?? {}
    return inactive_file + active_file
  }

  it('is what StatsContainer reports, paused and resumed', async () => {
    const init = await run('counted', 'i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; echo done; read line')
    await init.readUntil('done')
    await pod.agent.pauseContainer({ containerId: 'counted' })
    const { cgroupStats } = await pod.agent.statsContainer({ containerId: 'counted' })
    const text = await filesOf(
      'counted',
      'cgroup.freeze',
      'memory.max',
      'pids.current',
      'pids.max',
      'cpu.stat',
    )
    const [freeze, max, current, limit, ...cpu] = text.trim().split('\n')
    expect([freeze, max, current, limit]).toEqual(['1', String(LIMIT), '1', '50'])
    expect(cgroupStats?.memoryStats?.usage?.limit).toBe(LIMIT)
    expect(cgroupStats?.memoryStats?.usage?.usage).toBeGreaterThan(0n)
    expect(cgroupStats?.memoryStats?.stats).toHaveProperty('inactive_file')
    expect(cgroupStats?.pidsStats).toEqual({ current: 1n, limit: 50n })
    const used = cpu.find((line) => line.startsWith('usage_usec '))?.split(' ')[1] ?? ''
    expect(cgroupStats?.cpuStats?.cpuUsage?.totalUsage).toBe(BigInt(used) * 1000n)
    await pod.agent.updateContainer({ containerId: 'counted', resources: { Pids: { Limit: 60n } } })
    expect(await filesOf('counted', 'cgroup.freeze', 'pids.max')).toBe('1\n60\n')
    await pod.agent.resumeContainer({ containerId: 'counted' })
    await init.write('end\n')
    expect(await init.wait()).toBe(0)
    const after = await pod.agent.statsContainer({ containerId: 'counted' })
    expect(after.cgroupStats?.pidsStats).toEqual({ current: 0n, limit: 60n })
    await pod.remove('counted')
  })

  it('can be removed while it is frozen', async () => {
    await run('frozen', 'sleep 1000')
    await pod.agent.pauseContainer({ containerId: 'frozen' })
    await pod.remove('frozen')
    const left = await pod.output('left', 'ls -d /guest/cgroup/containers/frozen || true', {
      mounts: [bind('/sys/fs/cgroup', '/guest/cgroup')],
    })
    expect(left).toBe('')
  })

  it('can be killed while it is frozen', async () => {
    const init = await run('killed', 'sleep 1000')
    await pod.agent.pauseContainer({ containerId: 'killed' })
    await pod.agent.signalProcess({ containerId: 'killed', signal: SIGKILL })
    expect(await init.wait()).toBe(128 + SIGKILL)
    await pod.remove('killed')
  })

  it('may be divided by the first process, which added processes then follow', async () => {
    await expectAddedProcessesIn('init', pod)
  })

  it('is emptied of a fork bomb by one kill', async () => {
    await pod.run('owner', BOMB_OWNER, { sandboxPidns: true })
    const bomb = await pod.run('bomb', FORK_BOMB, { sandboxPidns: true, linux: bombLinux(BOMB_LIMIT) })
    await explosion(pod.agent, 'bomb', BOMB_LIMIT)
    await pod.agent.signalProcess({ containerId: 'bomb', signal: SIGKILL })
    expect(await bomb.wait()).toBe(128 + SIGKILL)
    for (const id of ['bomb', 'owner']) await pod.remove(id)
    const zombies = 'grep -l "^State:.Z" /guest/proc/[0-9]*/status 2>/dev/null || true'
    expect(await pod.output('zombies', zombies, { mounts: [GUEST_PROC] })).toBe('')
  })

  it('makes GetOOMEvent answer each time that it runs out of memory', async () => {
    const init = await run('hungry', `while read line; do ${HOG} 2>/dev/null; echo "status $?"; done`)
    for (let round = 0; round < 2; round++) {
      const polling = pod.agent.getOOMEvent({})
      await init.write('go\n')
      expect((await polling).containerId).toBe('hungry')
      expect(await init.readUntil('\n')).toBe(`status ${128 + SIGKILL}\n`)
    }
    await pod.remove('hungry')
  })

  it('releases the file pages of an idle container', async () => {
    // The kernel charges a page to the cgroup that reads it first.
    const init = await pod.run('idle', ['sh', '-c', 'cat /agent/* > /dev/null; echo read; read line'], {
      mounts: [bind('/usr/lib/microvm-agent', '/agent')],
    })
    await init.readUntil('read')
    const before = await filePagesOf('idle')
    expect(before).toBeGreaterThan(16n << 20n)
    const quick = { periodSecs: 1n, evictionRunAgingCountMin: 1n }
    await pod.agent.memAgentMemcgSet({ disabled: false, ...quick })
    await consoleLine(guest, /"memory reclaimed".*"containerId":"idle"/)
    await pod.agent.memAgentMemcgSet({ disabled: true })
    expect(await filePagesOf('idle')).toBeLessThan(before / 4n)
    await pod.remove('idle')
  })

  it('leaves memory that is free in whole blocks, when the guest compacts it', async () => {
    const scanned = async () =>
      Number(
        await pod.output('scanned', "awk '/^compact_migrate_scanned/ { print $2 }' /guest/proc/vmstat", {
          mounts: [GUEST_PROC],
        }),
      )
    const before = await scanned()
    await pod.agent.memAgentCompactSet({ disabled: false, periodSecs: 1n, compactForceTimes: 0n })
    expect(await consoleLine(guest, /"memory compacted"/)).not.toContain('"stopped"')
    await pod.agent.memAgentCompactSet({ disabled: true })
    expect(await scanned()).toBeGreaterThan(before)
  })

  it('ends with the guest that SIGTERM to PID 1 stops', () => expectStopBySignal('TERM', guest, pod))
})
