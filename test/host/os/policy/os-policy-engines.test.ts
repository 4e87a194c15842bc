import { beforeEach, describe, expect, it } from 'vitest'
import {
  type PolicyEngine,
  type PolicyEngines,
  PolicyError,
} from '../../../../src/os/policy/policy-engine.ts'
import { FakePolicyEngines } from '../../../support/fakes/fake-policy-engines.ts'
import { noPolicyAddon, policyOf, realPolicyEngines } from '../../../support/os/policy-addon.ts'

const POLICY = policyOf(`
default allowed := false
allowed if { print("x is", input.x); input.x == 1 }
echo := input.x
seen := data.pstate.n
conflict := 1
conflict := 2
`)

const SAME_POLICY = new FakePolicyEngines({
  [POLICY]: {
    allowed: ({ input, print }) => {
      print(`x is ${input.x}`)
      return input.x === 1
    },
    echo: ({ input }) => input.x,
    seen: ({ data }) => data.pstate.n,
    conflict: () => {
      throw new PolicyError('agent_policy:7:1: rules conflict')
    },
  },
})

const missing = await noPolicyAddon()

describe.each([
  { name: 'policy.node', build: realPolicyEngines, reason: missing },
  { name: 'FakePolicyEngines', build: async () => SAME_POLICY, reason: undefined },
])('$name', ({ build, reason }) => {
  let engines: PolicyEngines
  let engine: PolicyEngine
  beforeEach(async ({ skip }) => {
    skip(reason !== undefined, reason)
    engines = await build()
    engine = await engines.compile(POLICY)
    return () => engine.close()
  })

  it('gives the value of a rule as JSON, and none where there is none', async () => {
    const values = ['{"x":{"a":[1,null]}}', '{}'].map((input) => engine.evaluate('echo', input))
    expect(await Promise.all(values)).toEqual([
      { value: '{"a":[1,null]}', prints: [] },
      { value: undefined, prints: [] },
    ])
    expect((await engine.evaluate('no_rule', '{}')).value).toBeUndefined()
  })

  it('gives what an evaluation prints to that evaluation', async () => {
    const [one, two] = await Promise.all([1, 2].map((x) => engine.evaluate('allowed', `{"x":${x}}`)))
    expect(one).toEqual({ value: 'true', prints: [expect.stringMatching(/\bx is 1$/)] })
    expect(two).toEqual({ value: 'false', prints: [expect.stringMatching(/\bx is 2$/)] })
  })

  it('evaluates in the order of the calls, by the data of the calls before', async () => {
    const calls = [1, 2].flatMap((n) => [
      engine.setData(`{"pstate":{"n":${n}}}`),
      engine.evaluate('seen', '{}').then(({ value }) => value),
    ])
    expect(await Promise.all(calls)).toEqual([undefined, '1', undefined, '2'])
    await engine.setData('{"pstate":{}}')
    expect((await engine.evaluate('seen', '{}')).value).toBeUndefined()
  })

  it('shares no data between engines', async () => {
    const other = await engines.compile(POLICY)
    await Promise.all([engine.setData('{"pstate":{"n":1}}'), other.setData('{"pstate":{"n":2}}')])
    const seen = await Promise.all([engine, other].map((each) => each.evaluate('seen', '{}')))
    expect(seen.map(({ value }) => value)).toEqual(['1', '2'])
    other.close()
  })

  it('takes nothing but JSON, and an object as data, and keeps the data before', async () => {
    await engine.setData('{"pstate":{"n":1}}')
    for (const json of ['[]', '{']) await expect(engine.setData(json)).rejects.toThrow(PolicyError)
    await expect(engine.evaluate('echo', '[1')).rejects.toThrow(PolicyError)
    expect((await engine.evaluate('seen', '{}')).value).toBe('1')
  })

  it('fails for a rule that fails and for a name that no rule can have, and continues', async () => {
    await expect(engine.evaluate('conflict', '{}')).rejects.toThrow(/^agent_policy:\d+:\d+: ./)
    await expect(engine.evaluate('conflict', '{}')).rejects.toThrow(PolicyError)
    await expect(engine.evaluate('a b', '{}')).rejects.toThrow('rule "a b": no name of a rule')
    expect((await engine.evaluate('echo', '{"x":1}')).value).toBe('1')
  })

  it('names the place in a text that is no policy', async () => {
    const compiling = engines.compile('no policy')
    await expect(compiling).rejects.toThrow(PolicyError)
    await expect(compiling).rejects.toThrow(/^\w+:1:1: ./)
  })

  it('is closed after the calls before, and takes none after', async () => {
    const before = engine.evaluate('echo', '{"x":1}')
    engine.close()
    engine.close()
    const refusal = new PolicyError('the policy engine is closed')
    await expect(engine.evaluate('echo', '{}')).rejects.toThrow(refusal)
    await expect(engine.setData('{}')).rejects.toThrow(refusal)
    expect((await before).value).toBe('1')
  })
})

describe('FakePolicyEngines', () => {
  it('has no open engine left', () => {
    expect(SAME_POLICY.open).toBe(0)
  })
})
