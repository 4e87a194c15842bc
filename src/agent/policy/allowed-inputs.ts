/** Longer inputs are not kept. */
const MAX_CHARACTERS = 1024
/** Per rule. */
const MAX_INPUTS = 256

/** A rule allows these inputs again until policy or state change, so that frequent calls are evaluated once. */
export class AllowedInputs {
  readonly #inputs = new Map<string, Set<string>>()
  readonly #isDeterministic: boolean

  constructor(isDeterministic: boolean) {
    this.#isDeterministic = isDeterministic
  }

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

  /** Called when the state changes. */
  clear(): void {
    this.#inputs.clear()
  }
}
