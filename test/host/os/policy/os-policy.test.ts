import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import { loadPolicyEngines } from '../../../../src/os/policy/load-policy-engines.ts'
import { type PolicyEngines, PolicyError } from '../../../../src/os/policy/policy-engine.ts'
import {
  noPolicyAddon,
  policyAddonFolder,
  policyOf,
  realPolicyEngines,
  withPolicy,
} from '../../../support/os/policy-addon.ts'

const skipped = (await noPolicyAddon()) !== undefined

const ECHO = 'echo := input'

async function echoed(json: string): Promise<string | undefined> {
  return await withPolicy(ECHO, async (engine) => (await engine.evaluate('echo', json)).value)
}

async function answerOf(rules: string, rule: string, input = '{}'): Promise<string | undefined> {
  return await withPolicy(rules, async (engine) => (await engine.evaluate(rule, input)).value)
}

async function failureOf(work: Promise<unknown>): Promise<string> {
  try {
    await work
  } catch (error) {
    expect(error).toBeInstanceOf(PolicyError)
    return error instanceof Error ? error.message : String(error)
  }
  throw new Error('no failure')
}

let engines: PolicyEngines
beforeAll(async () => {
  if (!skipped) engines = await realPolicyEngines()
})

describe.skipIf(skipped)('a value that goes through a policy', () => {
  it.each([
    ['null', 'null'],
    ['booleans', '[true,false]'],
    ['integers up to 2^64 - 1', '[0,-1,9007199254740993,-9007199254740993,18446744073709551615]'],
    ['floats', '[0.5,-1.25,3.141592653589793]'],
    ['strings with NUL, surrogate pairs and all escapes', '"\\u0000\\"\\\\\\n😀é\\u001f"'],
    ['empty ones', '["",[],{}]'],
    ['arrays and objects', '[{"b":[1,[2,{}]],"c":null},[]]'],
    ['a list of bytes', JSON.stringify([...Buffer.alloc(4096, 7)])],
  ])('is the same: %s', async (_, json) => {
    expect(JSON.parse((await echoed(json)) ?? '')).toEqual(JSON.parse(json))
    if (/\d{16}/.test(json) && !json.includes('.')) expect(await echoed(json)).toBe(json)
  })

  it('is an array of a set, in order and without repetition', async () => {
    expect(await answerOf('r := {3, 1, 2, 1}', 'r')).toBe('[1,2,3]')
  })

  it('has texts in place of other keys of an object', async () => {
    expect(await answerOf('r := {1: "a", null: "b"}', 'r')).toBe('{"null":"b","1":"a"}')
  })

  it('has integers beyond 64 bits as floats', async () => {
    expect(Number(await echoed('36893488147419103232'))).toBe(2 ** 65)
  })

  it('may be 100 levels deep', async () => {
    const json = `${'['.repeat(100)}1${']'.repeat(100)}`
    expect(await echoed(json)).toBe(json)
  })

  it.each([
    ['broken JSON', '[1'],
    ['more than 127 levels', `${'['.repeat(128)}1${']'.repeat(128)}`],
    ['half a surrogate pair', '"\\ud800"'],
    ['a number that no float holds', '1e400'],
  ])('is refused, and the next one taken: %s', async (_, json) => {
    await withPolicy(ECHO, async (engine) => {
      expect(await failureOf(engine.evaluate('echo', json))).toMatch(/^input: .* at line 1 column \d+$/)
      expect(await engine.evaluate('echo', '1')).toEqual({ value: '1', prints: [] })
    })
  })
})

describe.skipIf(skipped)('a rule', () => {
  const rules = `
    default denied := false
    denied if { input.x == 1 }
    undefined_here if { input.x == 1 }
    default allowed := true
  `

  it.each([
    ['denied', '{"x":1}', 'true'],
    ['denied', '{"x":2}', 'false'],
    ['allowed', '{}', 'true'],
    ['undefined_here', '{"x":1}', 'true'],
    ['undefined_here', '{"x":2}', undefined],
    ['not_there', '{}', undefined],
  ])('%s of %s is %s', async (rule, input, value) => {
    expect(await answerOf(rules, rule, input)).toBe(value)
  })

  it('may be in several parts', async () => {
    const parts = 'r.allowed := input.x\nr.ops := [1]'
    expect(await answerOf(parts, 'r', '{"x":true}')).toBe('{"allowed":true,"ops":[1]}')
    expect(await answerOf('r.allowed if input.x', 'r', '{"x":false}')).toBe('{}')
  })

  it('sees what an earlier rule decided by the same data only', async () => {
    await withPolicy(rules, async (engine) => {
      const values = await Promise.all([1, 2, 1].map((x) => engine.evaluate('denied', `{"x":${x}}`)))
      expect(values.map(({ value }) => value)).toEqual(['true', 'false', 'true'])
    })
  })

  it.each(['', 'a b', 'a; true', 'a[0]', 'data.x', 'é'])('has no such name: "%s"', async (name) => {
    expect(await failureOf(answerOf(rules, name))).toBe(`rule ${JSON.stringify(name)}: no name of a rule`)
  })
})

describe.skipIf(skipped)('the data of a policy', () => {
  const rules = 'seen := data.pstate.n\nall := data.pstate'

  it('is replaced as a whole', async () => {
    await withPolicy(rules, async (engine) => {
      expect((await engine.evaluate('seen', '{}')).value).toBeUndefined()
      await engine.setData('{"pstate":{"n":1,"gone":true}}')
      expect((await engine.evaluate('seen', '{}')).value).toBe('1')
      await engine.setData('{"pstate":{"n":2}}')
      expect((await engine.evaluate('all', '{}')).value).toBe('{"n":2}')
    })
  })

  it.each([
    ['[]', 'data: no object'],
    ['{', 'data: EOF while parsing an object at line 1 column 1'],
  ])('stays when it cannot be replaced by %s', async (json, message) => {
    await withPolicy(rules, async (engine) => {
      await engine.setData('{"pstate":{"n":1}}')
      expect(await failureOf(engine.setData(json))).toBe(message)
      expect((await engine.evaluate('seen', '{}')).value).toBe('1')
    })
  })

  it('is that of the calls before, in their order', async () => {
    await withPolicy(rules, async (engine) => {
      const calls = [1, 2, 3].flatMap((n) => [
        engine.setData(`{"pstate":{"n":${n}}}`),
        engine.evaluate('seen', '{}').then(({ value }) => value),
      ])
      expect((await Promise.all(calls)).filter((value) => value !== undefined)).toEqual(['1', '2', '3'])
    })
  })

  it('is not that of another engine', async () => {
    await withPolicy(rules, (first) =>
      withPolicy(rules, async (second) => {
        await Promise.all([first.setData('{"pstate":{"n":1}}'), second.setData('{"pstate":{"n":2}}')])
        const values = await Promise.all([first.evaluate('seen', '{}'), second.evaluate('seen', '{}')])
        expect(values.map(({ value }) => value)).toEqual(['1', '2'])
      }),
    )
  })
})

describe.skipIf(skipped)('print()', () => {
  it('is reported in order, even when the rule has no value, and only to its own evaluation', async () => {
    await withPolicy('r if { print("one", input.x); print("two"); input.x == 1 }', async (engine) => {
      const { value, prints } = await engine.evaluate('r', '{"x":2}')
      expect(value).toBeUndefined()
      expect(prints.map((line) => line.replace(/^.*\d+: /, ''))).toEqual(['one 2', 'two'])
      expect((await engine.evaluate('r', '{"x":1}')).prints).toHaveLength(2)
    })
  })

  it('is cut after 1,024 characters and 100 lines', async () => {
    const rules = 'r if { some i in numbers.range(1, 150); print(i, input.long); i == 150 }'
    const { prints } = await withPolicy(rules, (engine) =>
      engine.evaluate('r', JSON.stringify({ long: 'é'.repeat(5000) })),
    )
    expect(prints).toHaveLength(101)
    expect(prints[0]).toHaveLength(1025)
    expect(prints.at(-1)).toBe('… 50 more')
  })
})

describe.skipIf(skipped)('a policy that is refused', () => {
  it.each([
    ['of broken text', policyOf('r if { input.x == }'), /^agent_policy:2:19: expecting expression/],
    [
      'in the old syntax',
      policyOf('r { true }'),
      /^agent_policy:2:3: `if` keyword is required before rule body$/,
    ],
    ['without a package', 'r := 1', /^agent_policy:1:1: expecting `package` Missing package declaration\.$/],
    ['with an unbound name', policyOf('r if { unbound == 1 }'), /^agent_policy:2:8: .*unbound/],
    ['of 17 MiB', policyOf(`#${'x'.repeat(17 * 2 ** 20)}`), /^\d+ bytes, want at most 16777216$/],
    ['of 200,001 lines', policyOf('\n'.repeat(200_000)), /^200001 lines, want at most 200000$/],
  ])('says why: %s', async (_, text, message) => {
    expect(await failureOf(engines.compile(text))).toMatch(message)
  })

  it('is abandoned when its parser does not end', async () => {
    const longestMs = { compile: 300, setData: 300, evaluate: 300 }
    const impatient = loadPolicyEngines(await policyAddonFolder(), longestMs)
    // regorus takes twice the time for each level.
    const text = policyOf(`r := ${'{"a":'.repeat(31)}1${'}'.repeat(31)}`)
    expect(await failureOf(impatient?.compile(text) ?? Promise.resolve())).toBe(
      'the policy did not end within 300 ms',
    )
  })

  it('shows no line of itself, however long it is', async () => {
    const broken = (columns: number) => engines.compile(policyOf(`r := "${'x'.repeat(columns)}" +`))
    expect(await failureOf(broken(60_000))).toBe('agent_policy:2:60010: expecting expression')
    expect(await failureOf(broken(70_000))).toBe(
      'the evaluator failed: an error beyond column 65535 of a line',
    )
  })
})

describe.skipIf(skipped)('an evaluation that fails', () => {
  const rules = `
    conflict := 1
    conflict := 2
    overflow := count(numbers.range(1, 4000000000000000000))
    memory := count(numbers.range(1, 100000000))
    endless if {
      some a in numbers.range(1, 3000)
      some b in numbers.range(1, 3000)
      some c in numbers.range(1, 3000)
      a + b + c == 0
    }
    down(x) := y if { y := down(x + 1) }
    deep := down(1)
    fine := true
  `
  const fails = (rule: string) =>
    withPolicy(rules, async (engine) => {
      const failure = await failureOf(engine.evaluate(rule, '{}'))
      const later = await engine.evaluate('fine', '{}').then(
        ({ value }) => value,
        (error: unknown) => (error instanceof PolicyError ? error.message : undefined),
      )
      return { failure, later }
    })

  it('names the place', async () => {
    const { failure, later } = await fails('conflict')
    expect(failure).toMatch(/^agent_policy:\d+:\d+: /)
    expect(later).toBe('true')
  })

  it('ends after 100 ms when it would continue', async () => {
    const start = performance.now()
    const { failure, later } = await fails('endless')
    expect(failure).toBe('the evaluation takes longer than 100ms')
    expect(performance.now() - start).toBeLessThan(1_500)
    expect(later).toBe('true')
  })

  it('ends when a function calls itself for ever', async () => {
    expect((await fails('deep')).later).toBe('true')
  })

  it('fails like others when the evaluator panics', async () => {
    const failure = 'the evaluator failed: capacity overflow'
    expect(await fails('overflow')).toEqual({ failure, later: 'true' })
  })

  it('ends the engine, and nothing else, when it asks for too much memory', async () => {
    const failure = 'the policy asks for more memory than it may have'
    expect(await fails('memory')).toEqual({ failure, later: failure })
  })
})

describe.skipIf(skipped)('many evaluations', () => {
  it('take turns, and leave the event loop free', async () => {
    await withPolicy('r := input.x', async (engine) => {
      const asked = Array.from({ length: 100 }, (_, x) => engine.evaluate('r', `{"x":${x}}`))
      const values = (await Promise.all(asked)).map(({ value }) => Number(value))
      expect(values).toEqual(Array.from({ length: 100 }, (_, x) => x))
    })
  })

  it('leave the event loop free while each takes its whole time', async () => {
    const rules = 'r if { some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); a + b == 0 }'
    await withPolicy(rules, async (engine) => {
      let turns = 0
      const timer = setInterval(() => (turns += 1), 5)
      const asked = Array.from({ length: 3 }, () => failureOf(engine.evaluate('r', '{}')))
      for (const failure of await Promise.all(asked))
        expect(failure).toBe('the evaluation takes longer than 100ms')
      clearInterval(timer)
      expect(turns).toBeGreaterThan(10)
    })
  })
})

describe.skipIf(skipped)('a large policy', () => {
  const words = `words := [${Array.from({ length: 90_000 }, (_, n) => `"word-${n}"`).join(',')}]`

  it('may be 1 MB in one line', async () => {
    expect(words.length).toBeGreaterThan(2 ** 20)
    expect(await answerOf(`${words}\nr := words[7] if input.x`, 'r', '{"x":false}')).toBeUndefined()
  })

  it('gives its memory back when it is closed', async () => {
    const engine = await engines.compile(
      policyOf([1, 2, 3].map((n) => words.replace('s', `s${n}`)).join('\n')),
    )
    const full = residentMib()
    engine.close()
    await expect.poll(() => full - residentMib()).toBeGreaterThan(20)
  })
})

describe.skipIf(skipped)('a closed engine', () => {
  it('ends the evaluations before, and refuses those after', async () => {
    const engine = await engines.compile(policyOf('r := 1'))
    const before = engine.evaluate('r', '{}')
    engine.close()
    engine.close()
    expect(await failureOf(engine.evaluate('r', '{}'))).toBe('the policy engine is closed')
    expect((await before).value).toBe('1')
  })
})

function residentMib(): number {
  const [, pages] = readFileSync('/proc/self/statm', 'utf8').split(' ')
  return (Number(pages) * 4096) / 2 ** 20
}
