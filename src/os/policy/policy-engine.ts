/** Why an agent has no engine. */
export const NO_POLICY_ENGINE = 'this image has no policy engine, want one of npm run image'

/** The value of a rule for one input. */
export interface RuleOutcome {
  /** The value as JSON; undefined when the rule has no value for this input, or does not exist. */
  readonly value: string | undefined
  /** What print() wrote during the evaluation, in order and bounded. */
  readonly prints: readonly string[]
}

/** A policy that was accepted. Its evaluations run off the event loop, one at a time, in the order of the calls. */
export interface PolicyEngine {
  /** Replaces the whole document `data`. `json` is an object. Throws PolicyError, and then the document is as before. */
  setData(json: string): Promise<void>
  /**
   * The value of `data.agent_policy.<rule>` for `input`, which is JSON. Throws PolicyError when the evaluation fails or
   * takes longer than 100 ms.
   */
  evaluate(rule: string, input: string): Promise<RuleOutcome>
  /** Gives the memory of the engine back after the evaluations that run. Later calls throw PolicyError. */
  close(): void
}

/** Makes engines of policies. */
export interface PolicyEngines {
  /**
   * Parses a policy in Rego. Throws PolicyError with the parser's sentence, which names line and column, and for one of
   * more than 16 MiB or 200,000 lines.
   */
  compile(text: string): Promise<PolicyEngine>
}

/** What is wrong with a policy, or with its evaluation. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
}
