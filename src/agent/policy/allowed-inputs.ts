/** Longer inputs are not kept. */
const MAX_CHARACTERS = 1024
/** Of each rule. */
const MAX_INPUTS = 256

/**
 * Inputs that a rule has allowed without a change of the state and without a text. As long as policy and state are the
 * same, the rule allows them again, so a call that comes by the thousand, such as WriteStdin, is evaluated once.
 */
export class AllowedInputs {
  readonly #inputs = new Map<string, Set<string>>()
  readonly #isDeterministic: boolean

  /** Keeps nothing unless the policy gives the same input the same value at any time. */
  constructor(isDeterministic: boolean) {
    this.#isDeterministic = isDeterministic
  }

  /** Whether there is an input of the rule. */
  hasAny(rule: string): boolean {
    return this.#inputs.has(rule)
  }

  has(rule: string, input: string): boolean {
    return this.#inputs.get(rule)?.has(input) ?? false
  }

  add(rule: string, input: string): void {
    if (!this.#isDeterministic || input.length > MAX_CHARACTERS) return
    const inputs = this.#inputs.get(rule)
    if (inputs !== undefined && inputs.size < MAX_INPUTS) inputs.add(input)
    else this.#inputs.set(rule, new Set([input]))
  }

  /** Forgets all, because the state changes. */
  clear(): void {
    this.#inputs.clear()
  }
}
