import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { processes, processState } from '../../support/processes.ts'

const CLOSE_ON_EXEC = 0o2000000

describe('the socket of an agent below vminit', () => {
  let agent: AgentProcess
  beforeAll(async () => {
    agent = await startAgent()
  })
  afterAll(() => agent?.stop())

  /** vminit is stopped meanwhile, so no other agent starts before `meanwhile` is done. */
  async function withoutAgent<T>(meanwhile: () => Promise<T>): Promise<T> {
    process.kill(agent.vminitPid, 'SIGSTOP')
    try {
      const pid = agent.agentPid()
      process.kill(pid, 'SIGKILL')
      await expect.poll(() => processState(pid)?.state).toBe('Z')
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

  it('keeps the open connections and their requests', async () => {
    const before = agent.agentPid()
    const answer = await withoutAgent(async () => ({ promise: agent.health.check({}) }))
    expect(await answer.promise).toMatchObject({ status: 1 })
    expect(agent.agentPid()).not.toBe(before)
  })

  it('takes new connections once the broker has died, which ends the earlier ones', async () => {
    const before = agent.agentPid()
    const broker = processes().find(({ parent, name }) => parent === agent.vminitPid && name === 'api-broker')
    const lost = await agent.connect()
    // Otherwise the next broker may be the one that accepts it.
    expect(await lost.health.check({})).toMatchObject({ status: 1 })
    process.kill(broker?.pid ?? 0, 'SIGKILL')
    await lost.closed
    const connection = await agent.connect()
    expect(await connection.health.check({})).toMatchObject({ status: 1 })
    connection.close()
    expect(agent.agentPid()).not.toBe(before)
  })

  it('costs 2 MB of memory at most, that of vminit and the broker together', () => {
    const own = processes().filter(({ pid, name }) => pid === agent.vminitPid || name === 'api-broker')
    const kilobytes = own
      .filter(({ pid, parent }) => pid === agent.vminitPid || parent === agent.vminitPid)
      .map(({ pid }) => readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))
      .map((text) => Number(/^Pss: +(\d+) kB$/m.exec(text)?.[1]))
    expect(kilobytes).toHaveLength(2)
    expect(Math.max(...kilobytes)).toBeGreaterThan(0)
    expect(kilobytes.reduce((sum, each) => sum + each)).toBeLessThan(2000)
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
