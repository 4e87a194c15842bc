import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL, SIGTERM } from '../../../src/base/signals.ts'
import { BOMB_OWNER, bombLinux, explosion, FORK_BOMB } from '../../support/containers/fork-bomb.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import {
  type AgentPod,
  cgroupsOf,
  initPidOf,
  type Leftovers,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'

/** With this many processes, killing every listed process takes longer than a fork. */
const LIMIT = 100n

describe('a fork bomb below a limit of processes', () => {
  let pod: AgentPod
  let before: Leftovers
  beforeAll(async () => {
    pod = await startPod()
    await pod.run('owner', BOMB_OWNER, { sandboxPidns: true })
    before = left()
  })
  afterAll(() => pod.stop())

  /**
   * Leftovers of the bomb and its owner. Living processes are shown by pid only: an owner that was just started may still
   * have its runtime's name.
   */
  function left(): Leftovers {
    const all = leftoversOf(pod.started, 'bomb')
    return { ...all, processes: all.processes.map((line) => line.replace(/ .* alive$/s, '')) }
  }

  async function explode(id: string): Promise<RemoteProcess> {
    const init = await pod.run(id, FORK_BOMB, { sandboxPidns: true, linux: bombLinux(LIMIT) })
    await explosion(pod.agent, id, LIMIT)
    return init
  }

  it('is stopped by a kill of the whole container, which reaches processes forked meanwhile', async () => {
    const init = await explode('bomb')
    await init.signal(SIGTERM)
    await pod.agent.signalProcess({ containerId: 'bomb', signal: SIGKILL })
    expect(await init.wait()).toBe(128 + SIGKILL)
    const [cgroup] = cgroupsOf('bomb', pod.started)
    await expect.poll(() => readFileSync(`${cgroup}/cgroup.procs`, 'utf8')).toBe('')
    await pod.remove('bomb')
    expect(left()).toEqual(before)
  })

  it('is removed while it runs', async () => {
    const init = await explode('bomb')
    const status = init.wait()
    await pod.remove('bomb')
    expect(await status).toBe(128 + SIGKILL)
    expect(left()).toEqual(before)
  })
})

describe('RemoveContainer of a container that does not end', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  it('gives up after its timeout, naming the process, and keeps everything; with 0 it waits longer', async () => {
    const init = await pod.run('lasting', ['sleep', '1000'])
    const waits = Array.from({ length: 10 }, () => init.wait())
    const before = leftoversOf(pod.started, 'lasting')
    const pid = initPidOf(pod.started, 'lasting')
    // A stopped vminit reaps no process, so the agent receives no exit.
    process.kill(pod.started.vminitPid, 'SIGSTOP')
    let removal: Promise<void> | undefined
    try {
      await expect(pod.agent.removeContainer({ containerId: 'lasting', timeout: 1 })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: `remove container lasting: ETIME: processes (${pid}) not ended within 1 s`,
      })
      expect(leftoversOf(pod.started, 'lasting')).toMatchObject({
        mounts: before.mounts,
        bundles: before.bundles,
        cgroups: before.cgroups,
        runtimeState: before.runtimeState,
      })
      removal = pod.remove('lasting')
      let isOver = false
      void removal.then(() => {
        isOver = true
      })
      await pod.started.health.check({})
      await expect(pod.create('lasting', ['true'])).rejects.toThrow(
        "container id 'lasting': already exists (removing)",
      )
      expect(isOver).toBe(false)
    } finally {
      process.kill(pod.started.vminitPid, 'SIGCONT')
    }
    await removal
    expect(new Set(await Promise.all(waits))).toEqual(new Set([128 + SIGKILL]))
    expect(leftoversOf(pod.started, 'lasting')).toEqual(NOTHING_LEFT)
  })
})
