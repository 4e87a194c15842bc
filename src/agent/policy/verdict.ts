import { AgentError, messageOf } from '../../base/errors.ts'
import type { RuleOutcome } from '../../os/policy/policy-engine.ts'
import { parseExactly } from './json-patch.ts'

export interface Rule {
  /** The name of the request's message, such as `CreateContainerRequest`. */
  readonly name: string
  /** The same with its package. */
  readonly message: string
  /** The policy must have the rule: without it the call fails with INTERNAL. Other calls are denied. */
  readonly isExpected: boolean
}

/** A rule's output may quote the request, so it stays out of the log. */
export class Refusal extends AgentError {}

export type Verdict =
  | { readonly allowed: true; readonly ops: readonly unknown[] }
  | { readonly allowed: false; readonly refusal: Refusal }

/** A rule returns a boolean or an object `{allowed, ops}`. Any other value is an error of the policy. */
export function verdictOf(rule: Rule, { value, prints }: RuleOutcome): Verdict {
  if (value === undefined && rule.isExpected) return failed(rule, 'the policy has no value for this rule')
  if (value === undefined || value === 'false') return { allowed: false, refusal: denied(rule, prints) }
  if (value === 'true') return { allowed: true, ops: [] }
  try {
    const { allowed, ops } = answerOf(parseExactly(value))
    return allowed ? { allowed, ops } : { allowed, refusal: denied(rule, prints) }
  } catch (error) {
    return failed(rule, messageOf(error))
  }
}

export function failed(rule: Rule, reason: string): { readonly allowed: false; readonly refusal: Refusal } {
  return { allowed: false, refusal: failure(rule, reason) }
}

export function failure({ name }: Rule, reason: string): Refusal {
  const loggedMessage = `${name}: internal error`
  return new Refusal('INTERNAL', `${loggedMessage}: ${reason}`, { loggedMessage })
}

function denied({ name }: Rule, prints: readonly string[]): Refusal {
  const loggedMessage = `${name} is blocked by policy`
  return new Refusal('PERMISSION_DENIED', `${loggedMessage}: ${prints.join(' ')}`, { loggedMessage })
}

function answerOf(value: unknown): { readonly allowed: boolean; readonly ops: readonly unknown[] } {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('the rule is neither a boolean nor an object')
  const allowed: unknown = Object.hasOwn(value, 'allowed') ? Reflect.get(value, 'allowed') : undefined
  const ops: unknown = Object.hasOwn(value, 'ops') ? Reflect.get(value, 'ops') : undefined
  if (typeof allowed !== 'boolean') throw new Error('allowed: not a boolean')
  if (ops !== undefined && ops !== null && !Array.isArray(ops)) throw new Error('ops: not an array')
  return { allowed, ops: ops ?? [] }
}
