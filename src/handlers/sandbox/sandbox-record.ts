import { SandboxPayload_Phase as Phase, SandboxPayload } from '../../gen/state/sandbox.ts'
import type { GuestHooks } from '../../oci/hooks.ts'
import { KINDS, type StateStore } from '../../state/state-store.ts'

export { Phase }

type Fields = Omit<SandboxPayload, 'schemaVersion'>

const NAME = 'sandbox'

/** What is saved of the sandbox for the next agent (proto/state/sandbox.proto). */
export class SandboxRecord {
  readonly #state: StateStore
  #fields: Fields

  constructor(state: StateStore, fields: Partial<Fields> = {}) {
    this.#state = state
    this.#fields = SandboxPayload.create(fields)
  }

  get fields(): Readonly<Fields> {
    return this.#fields
  }

  /** Throws the kernel's error, and then keeps the old fields. */
  save(changes: Partial<Fields>): void {
    const fields = { ...this.#fields, ...changes }
    this.#state.write(KINDS.sandbox, NAME, fields)
    this.#fields = fields
  }

  saveHooks({ prestart, poststart, poststop }: GuestHooks): void {
    this.save({ prestart: [...prestart], poststart: [...poststart], poststop: [...poststop] })
  }

  remove(): void {
    this.#state.remove(NAME)
  }
}
/** Throws UnreadableState. */
export function readSandboxRecord(state: StateStore): SandboxRecord | undefined {
  const payload = state.read(KINDS.sandbox, NAME)
  return payload && new SandboxRecord(state, payload)
}
