import { copyFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import {
  type AgentPod,
  killAgent,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { bookwormRunc } from '../../support/host/bookworm-runc.ts'
import { hostRuntime } from '../../support/host/host-runtimes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const WARNING = 'runtime has known break-outs'

describe("the image's runc, replaced by Debian 12's while containers run,", () => {
  let runtime: string
  let pod: AgentPod
  const replace = (program: string) => {
    copyFileSync(program, `${runtime}.new`)
    renameSync(`${runtime}.new`, runtime)
  }
  const warnings = () => pod.started.log.filter(({ msg }) => msg === WARNING)

  beforeAll(async () => {
    runtime = join(temporaryFolder(), 'runc')
    replace(await hostRuntime('runc'))
    pod = await startPod({ runtime })
    for (const id of ['running', 'paused', 'later']) await pod.run(id, ['sleep', '1000'])
    await pod.create('waiting', ['sh', '-c', 'exit 7'])
    await pod.agent.pauseContainer({ containerId: 'paused' })
    expect(warnings()).toEqual([])
    replace(await bookwormRunc())
  })
  afterAll(() => pod?.stop())

  it('is warned of once, when it next makes a process', async () => {
    expect(await (await pod.add('running', 'e', ['sh', '-c', 'exit 5'])).wait()).toBe(5)
    const advisories = 'CVE-2025-31133 CVE-2025-52565 CVE-2025-52881'
    await pod.started.logged({ msg: WARNING, level: 'WARN', runtime, advisories })
    expect(await (await pod.run('new', ['sh', '-c', 'exit 9'])).wait()).toBe(9)
    await pod.remove('new')
    expect(warnings()).toHaveLength(1)
  })

  it('starts, kills and removes the containers of the other', async () => {
    await pod.agent.startContainer({ containerId: 'waiting' })
    expect(await pod.agent.waitProcess({ containerId: 'waiting' })).toMatchObject({ status: 7 })
    await pod.agent.signalProcess({ containerId: 'running', signal: SIGKILL })
    expect(await pod.agent.waitProcess({ containerId: 'running' })).toMatchObject({ status: 137 })
    const ids = ['waiting', 'running', 'paused']
    for (const id of ids) await pod.remove(id)
    expect(leftoversOf(pod.started, ...ids)).toMatchObject({
      ...NOTHING_LEFT,
      processes: [expect.anything()],
    })
  })

  it('is warned of again by the agent that follows a killed one, and that removes the rest', async () => {
    await killAgent(pod)
    expect(await (await pod.add('later', 'e', ['sh', '-c', 'exit 5'])).wait()).toBe(5)
    await expect.poll(warnings).toHaveLength(2)
    await pod.remove('later')
    expect(leftoversOf(pod.started, 'later')).toEqual(NOTHING_LEFT)
  })
})
