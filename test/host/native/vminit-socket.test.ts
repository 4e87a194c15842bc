import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'

/** O_CLOEXEC, as /proc/PID/fdinfo shows it. */
const CLOSE_ON_EXEC = 0o2000000

describe('the socket of an agent below vminit', () => {
  let agent: AgentProcess
  beforeAll(async () => {
    agent = await startAgent()
  })
  afterAll(() => agent?.stop())

  /** Kills the agent while vminit is stopped, so that no other one takes its place before `meanwhile` is done. */
  async function withoutAgent<T>(meanwhile: () => Promise<T>): Promise<T> {
    process.kill(agent.vminitPid, 'SIGSTOP')
    try {
      process.kill(agent.agentPid(), 'SIGKILL')
      await agent.closed
      return await meanwhile()
    } finally {
      process.kill(agent.vminitPid, 'SIGCONT')
    }
  }

  it('takes connections while no agent runs, which the next one answers', async () => {
    const before = agent.agentPid()
    const { answer, connection } = await withoutAgent(async () => {
      const waiting = await agent.connect()
      return { connection: waiting, answer: waiting.health.check({}) }
    })
    expect(await answer).toMatchObject({ status: 1 })
    connection.close()
    expect(agent.agentPid()).not.toBe(before)
  })

  it('is passed on to nothing that the agent starts', () => {
    const folder = `/proc/${agent.agentPid()}`
    const inherited = readdirSync(`${folder}/fd`).filter((fd) => {
      const [, flags = ''] = /flags:\t(\d+)/.exec(readFileSync(`${folder}/fdinfo/${fd}`, 'utf8')) ?? []
      return (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0
    })
    expect(inherited).toEqual([])
  })
})
