export const NO_POLICY_ENGINE = 'this image has no policy engine, want one of npm run image'

export interface RuleOutcome {
  /** JSON; undefined when the rule has no value for this input, or does not exist. */
  readonly value: string | undefined
  /** The output of print(), in order and limited in size. */
  readonly prints: readonly string[]
}

/** An accepted policy. Evaluations run off the event loop, one at a time, in the order of the calls. */
export interface PolicyEngine {
  /** Replaces the document `data` by a JSON object. Throws PolicyError, and keeps the old document then. */
  setData(json: string): Promise<void>
  /** The value of `data.agent_policy.<rule>` for JSON `input`. Throws PolicyError on a failure, or after 100 ms. */
  evaluate(rule: string, input: string): Promise<RuleOutcome>
  /** Frees the engine after the running evaluations. Later calls throw PolicyError. */
  close(): void
}

export interface PolicyEngines {
  /** Parses Rego. Throws PolicyError with line and column, or for more than 16 MiB or 200,000 lines. */
  compile(text: string): Promise<PolicyEngine>
}

export class PolicyError extends Error {
  override readonly name = 'PolicyError'
}
