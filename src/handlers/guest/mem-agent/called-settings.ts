import { messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { MemAgentCompactConfig, MemAgentMemcgConfig } from '../../../gen/agent.ts'
import { KINDS, type StateStore } from '../../../state/state-store.ts'

const NAME = 'guest'

/** The mem-agent settings that calls have changed. They outlive the agent. */
export class CalledSettings {
  readonly #state: Pick<StateStore, 'read' | 'write'>
  #reclaim: MemAgentMemcgConfig
  #compact: MemAgentCompactConfig

  /** Begins with the saved settings, and logs at level CRIT when they cannot be read. */
  constructor(state: Pick<StateStore, 'read' | 'write'>, log: Logger) {
    this.#state = state
    const { reclaim, compact } = readSettings(state, log)
    this.#reclaim = reclaim ?? MemAgentMemcgConfig.create()
    this.#compact = compact ?? MemAgentCompactConfig.create()
  }

  get reclaim(): MemAgentMemcgConfig {
    return this.#reclaim
  }

  get compact(): MemAgentCompactConfig {
    return this.#compact
  }

  /** Saves the fields of a call. Throws like `StateStore.write`, and then keeps the old fields. */
  addReclaim(request: MemAgentMemcgConfig): void {
    const reclaim = withFields(this.#reclaim, request)
    this.#state.write(KINDS.guest, NAME, { reclaim, compact: this.#compact })
    this.#reclaim = reclaim
  }

  addCompact(request: MemAgentCompactConfig): void {
    const compact = withFields(this.#compact, request)
    this.#state.write(KINDS.guest, NAME, { reclaim: this.#reclaim, compact })
    this.#compact = compact
  }
}

function readSettings(
  state: Pick<StateStore, 'read'>,
  log: Logger,
): {
  readonly reclaim?: MemAgentMemcgConfig | undefined
  readonly compact?: MemAgentCompactConfig | undefined
} {
  try {
    return state.read(KINDS.guest, NAME) ?? {}
  } catch (error) {
    log.critical('saved settings of the mem-agent not read', { error: messageOf(error) })
    return {}
  }
}

function withFields<Message extends object>(before: Message, request: Message): Message {
  const given = Object.entries(request).filter(([, value]) => value !== undefined)
  return { ...before, ...Object.fromEntries(given) }
}
