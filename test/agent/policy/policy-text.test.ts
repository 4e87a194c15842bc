import { describe, expect, it } from 'vitest'
import { isDeterministic, mayReadField, mayReadInput } from '../../../src/agent/policy/policy-text.ts'

describe('mayReadField', () => {
  it.each([
    'default WriteStreamRequest := true',
    'WriteStreamRequest if { input.container_id == "a" }',
    'a if { input.database == 1; data.input_data == input_data }',
    'x := data.agent_policy.input1',
    '# the input, and its input.data\nx := 1',
    '\t# input["data"]'.replaceAll('"', "'"),
  ])('is false for %j', (text) => {
    expect(mayReadField(text, 'data')).toBe(false)
  })

  it.each([
    'WriteStreamRequest if { input.data[0] == 1 }',
    'a if { some key; input[key] }',
    'x := input',
    'f(input)',
    'a if { input\n.data }',
    'a if { input ["data"] }',
    'import input as i',
    'import input.data as bytes',
    'a if { walk(input, p) }',
    // The parser ignores a comment at the end of a line.
    'x := 1 # of the input',
    // The text that began in line 1 ends in line 2.
    'x := `\n# ` ; y := input.data',
    'x := "\n# " ; y := input.data',
    '# a line\r y := input.data',
    '# a line\u2028 y := input.data',
  ])('is true for %j', (text) => {
    expect(mayReadField(text, 'data')).toBe(true)
  })

  it('takes a long text in its stride', () => {
    const line = `# ${'x'.repeat(8_000_000)}\n`
    expect(mayReadField(`${line}${line}x := input`, 'data')).toBe(true)
    expect(mayReadField(`${'input.id '.repeat(1_000_000)}`, 'data')).toBe(false)
  })
})

describe('isDeterministic', () => {
  it.each(['a if { input.time == 1 }', 'timeout := 1', 'a if { data.pstate.x }', '# at what time'])(
    'is true for %j',
    (text) => {
      expect(isDeterministic(text)).toBe(true)
    },
  )

  it.each([
    'a if { time.now_ns() > 1 }',
    'a if { time\n.now_ns() > 1 }',
    'x := rand.intn("a", 2)',
    'x := opa["runtime"]()',
    'x := uuid.rfc4122("")',
  ])('is false for %j', (text) => {
    expect(isDeterministic(text)).toBe(false)
  })
})

describe('mayReadInput', () => {
  it.each(['default AddSwapRequest := true', '# the input', 'inputs := 1'])('is false for %j', (text) => {
    expect(mayReadInput(text)).toBe(false)
  })

  it.each(['x := input', 'input.a', 'x := 1 # the input', 'x := `\n# ` ; y := input'])(
    'is true for %j',
    (text) => {
      expect(mayReadInput(text)).toBe(true)
    },
  )
})
