import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'

/** No identity and no time: the agent is a process of this machine. */
describe('an agent that dies in a repair', () => {
  let started: AgentProcess
  beforeAll(async () => {
    started = await startAgent()
  })
  afterAll(() => started?.stop())

  it('is followed by one that ends it, over the same connection', async () => {
    const { lifecycle, introspection } = started
    for (let deaths = 1; deaths <= 3; deaths++) {
      const generation = `restore ${deaths}`
      const begun = lifecycle.resumed({ generation, seed: randomBytes(32) })
      // The answer comes before the first step.
      if (deaths > 1) await begun
      process.kill(started.agentPid(), 'SIGKILL')
      const { number } = await begun
      expect(number).toBe(BigInt(deaths))
      const told = await lifecycle.getResume({ number, timeoutMs: 60_000 })
      expect(told).toMatchObject({ generation, state: 'ready', randomness: 'renewed' })
      expect(told.steps).toHaveLength(7)
      expect(await lifecycle.resumed({ generation })).toEqual({ number })
      const { agentRestarts } = await introspection.getSandbox({})
      expect(agentRestarts).toBe(deaths)
    }
  })
})
