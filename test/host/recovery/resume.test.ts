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

describe('a hundred calls for one restore', () => {
  let started: AgentProcess
  beforeAll(async () => {
    started = await startAgent()
  })
  afterAll(() => started?.stop())

  const hundred = Array.from({ length: 100 }, (_, index) => index)
  const repairs = () => started.log.filter(({ msg }) => msg === 'repair begun').length

  it('are one repair, at once over several connections and one after the other', async () => {
    const others = await Promise.all([started.connect(), started.connect()])
    const lifecycles = [started, ...others].map(({ lifecycle }) => lifecycle)
    const request = { generation: 'once', seed: randomBytes(32) }
    const ask = (index: number) => (lifecycles[index % 3] ?? expect.fail()).resumed(request)
    const same = hundred.map(() => ({ number: 1n }))
    expect(await Promise.all(hundred.map(ask))).toEqual(same)
    const told = await started.lifecycle.getResume({ number: 1n, timeoutMs: 60_000 })
    expect(told).toMatchObject({ generation: 'once', state: 'ready', randomness: 'renewed' })
    for (const index of hundred) expect(await ask(index)).toEqual({ number: 1n })
    await started.logged({ msg: 'repair ended' })
    expect(repairs()).toBe(1)
    expect(await started.lifecycle.getResume({ number: 1n, timeoutMs: 0 })).toEqual(told)
    for (const other of others) other.close()
  })

  it('with a generation each are served in order, as many as may wait, and the others are refused', async () => {
    const asked = await Promise.allSettled(
      hundred.map((index) => started.lifecycle.resumed({ generation: `each ${index}` })),
    )
    const numbers = asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value.number] : []))
    expect(numbers).toEqual(numbers.map((_, index) => BigInt(index + 2)))
    expect(numbers.length).toBeGreaterThanOrEqual(4)
    for (const each of asked) {
      if (each.status === 'rejected') expect(each.reason).toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    }
    const last = await started.lifecycle.getResume({ number: numbers.at(-1) ?? 0n, timeoutMs: 60_000 })
    expect(last.state).toBe('ready')
    expect(repairs()).toBe(1 + numbers.length)
  })
})
