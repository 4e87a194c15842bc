import { messageOf } from '../../base/errors.ts'
import { REQUESTS } from '../../gen/message-fields.ts'
import type { PolicyEngine, PolicyEngines } from '../../os/policy/policy-engine.ts'

export interface PolicyFault {
  readonly line?: number
  readonly column?: number
  readonly message: string
}

/** What a check found. An agent accepts a policy without errors. */
export interface PolicyFindings {
  readonly errors: readonly PolicyFault[]
  readonly warnings: readonly string[]
}

/** The package whose rules an agent evaluates. */
const PACKAGE = 'agent_policy'
/** The `data` document when a policy is set. */
const STATE = '{"pstate":{}}'
/** The limit of a SetPolicy request is 4 MiB. */
const SETTABLE_BYTES = (4 << 20) - 1024
const LETS_ALL_PASS = 'AllowRequestsFailingPolicy'

/** Parses a policy as an agent does, and evaluates each rule for an empty request. */
export async function checkPolicy(bytes: Buffer, engines: PolicyEngines): Promise<PolicyFindings> {
  const text = utf8Of(bytes)
  if (text === undefined) return { errors: [{ message: 'not UTF-8' }], warnings: [] }
  if (text.trim() === '') return { errors: [{ message: 'empty, want a policy in Rego' }], warnings: [] }
  let engine: PolicyEngine
  try {
    engine = await engines.compile(text)
  } catch (error) {
    return { errors: [faultOf(messageOf(error))], warnings: [] }
  }
  try {
    const { errors, warnings } = await triedRules(engine, text)
    const isLarge = bytes.length > SETTABLE_BYTES
    const tooLarge = `${bytes.length} bytes: an agent reads it as a file, but SetPolicy takes 4 MiB`
    return { errors, warnings: isLarge ? [...warnings, tooLarge] : warnings }
  } finally {
    engine.close()
  }
}

async function triedRules(engine: PolicyEngine, text: string): Promise<PolicyFindings> {
  const name = packageOf(text)
  if (name !== PACKAGE) {
    const message = `package ${name}: an agent asks for rules of another, want package ${PACKAGE}`
    return { errors: [{ message }], warnings: [] }
  }
  const errors: PolicyFault[] = []
  const withoutValue: string[] = []
  await engine.setData(STATE)
  for (const rule of RULES) {
    try {
      const { value } = await engine.evaluate(rule, '{}')
      if (value === undefined) withoutValue.push(rule)
    } catch (error) {
      const fault = faultOf(messageOf(error))
      errors.push({ ...fault, message: `${rule}: ${fault.message}` })
    }
  }
  const letsAllPass = (await valueOrNone(engine, LETS_ALL_PASS)) === 'true'
  return {
    errors,
    warnings: [
      ...(withoutValue.length === 0
        ? []
        : [`no value for an empty request, which then fails, want a default: ${withoutValue.join(', ')}`]),
      ...(letsAllPass ? [`${LETS_ALL_PASS} is true: calls pass that the policy refuses`] : []),
    ],
  }
}

/** One rule for each request of AgentService. */
const RULES: readonly string[] = [
  ...new Set(
    Object.entries(REQUESTS)
      .filter(([method]) => method.startsWith('grpc.AgentService/'))
      .map(([, message]) => message.slice(message.lastIndexOf('.') + 1)),
  ),
]

async function valueOrNone(engine: PolicyEngine, rule: string): Promise<string | undefined> {
  try {
    return (await engine.evaluate(rule, '{}')).value
  } catch {
    // An agent takes an error for false.
    return undefined
  }
}

/** The engine's text is `NAME:LINE:COLUMN: MESSAGE` or only a message. */
function faultOf(text: string): PolicyFault {
  const [, line, column, message = ''] = /^\w+:(\d+):(\d+): (.*)$/s.exec(text) ?? []
  return line === undefined ? { message: text } : { line: Number(line), column: Number(column), message }
}

/** A parsed policy begins with its package, after comments. */
function packageOf(text: string): string {
  return /^(?:\s|#.*\n)*package\s+(\S+)/.exec(text)?.[1] ?? ''
}

function utf8Of(bytes: Buffer): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}
