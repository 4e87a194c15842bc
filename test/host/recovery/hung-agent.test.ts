import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { processes } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()
/** The agent's program never returns once it gets SIGURG. */
const endless = join(folder, 'endless.cjs')
writeFileSync(endless, "process.on('SIGURG', function endlessLoop() { for (;;); })\n")

describe('an agent that hangs', () => {
  let pod: AgentPod
  afterEach(() => pod.stop())

  async function start(hangTimeoutSecs: number): Promise<void> {
    pod = await startPod({ hangTimeoutSecs, environment: { NODE_OPTIONS: `--require ${endless}` } })
  }

  /** During a call, the broker pings the agent. */
  async function check(): Promise<void> {
    await pod.started.health.check({}, { timeoutMs: 30_000 })
  }

  function supervisors(): readonly number[] {
    const broker = processes().find(
      ({ parent, name }) => parent === pod.started.vminitPid && name === 'api-broker',
    )
    return [pod.started.vminitPid, broker?.pid ?? 0]
  }

  it.each([
    { what: 'in an endless loop of its program', signal: 'SIGURG', shown: /endlessLoop .*endless\.cjs:1/ },
    {
      what: 'because it was stopped',
      signal: 'SIGSTOP',
      shown: /vminit: \/proc\/\d+\/wchan: do_signal_stop/,
    },
  ] as const)(
    '$what is reported, killed and replaced, and its client notices only time',
    async ({ signal, shown }) => {
      await start(1)
      const init = await pod.run('c1', ['sh', '-c', 'read line; echo "got $line"; exit 7'])
      const waiting = init.wait()
      const reading = init.readUntil('words\n')
      const hung = pod.started.agentPid()
      process.kill(hung, signal)
      // The agent answers until the signal arrives.
      await expect.poll(() => check().then(pod.started.errors)).toContain('killed by signal 9')
      await check()
      await init.write('words\n')
      expect(await reading).toBe('got words\n')
      expect(await waiting).toBe(7)
      const errors = pod.started.errors()
      expect(errors).toContain(`broker: agent ${hung} has not answered for 1000 ms`)
      expect(errors).toMatch(
        /broker: open request \d+: grpc\.AgentService\/WaitProcess, connection 1, stream \d+, for \d+ ms/,
      )
      expect(errors).toMatch(/broker: open request \d+: grpc\.Health\/Check, /)
      expect(errors).toContain('vminit: the agent hangs, and is killed in 2000 ms')
      expect(errors).toMatch(shown)
      expect(errors).toContain('vminit: the agent was killed by signal 9: restart 1 in 0 ms')
    },
  )

  it('continues when only the whole machine has stood still', async () => {
    await start(1)
    const agentPid = pod.started.agentPid()
    const [vminit = 0, broker = 0] = supervisors()
    for (const pauseMs of [1200, 1700]) {
      const checked = check()
      for (const pid of [agentPid, broker, vminit]) process.kill(pid, 'SIGSTOP')
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
      // The broker runs before the agent does.
      for (const pid of [vminit, broker]) process.kill(pid, 'SIGCONT')
      await new Promise((resolve) => setTimeout(resolve, 100))
      process.kill(agentPid, 'SIGCONT')
      await checked
    }
    expect(pod.started.agentPid()).toBe(agentPid)
    expect(pod.started.errors()).not.toContain('has not answered')
  })

  it('continues when only containers take all CPUs', async () => {
    await start(2)
    const agentPid = pod.started.agentPid()
    const hogs = 'i=0; while [ $i -lt 16 ]; do (while :; do :; done) & i=$((i+1)); done; echo up; wait'
    const init = await pod.run('hogs', ['sh', '-c', hogs])
    await init.readUntil('up\n')
    const until = performance.now() + 4000
    while (performance.now() < until) await check()
    await pod.remove('hogs')
    expect(pod.started.agentPid()).toBe(agentPid)
    expect(pod.started.errors()).not.toContain('has not answered')
  }, 60_000)
})
