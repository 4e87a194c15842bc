import { messageOf } from './errors.ts'
import type { Logger } from './log.ts'

/**
 * The undo list of one multi-step operation: each step registers its undo right after it succeeded.
 * `run` calls them backwards and never throws; `keep` forgets them once the operation has succeeded.
 */
export class UndoList {
  readonly #steps: { readonly name: string; readonly undo: () => Promise<void> | void }[] = []
  readonly #log: Logger

  constructor(log: Logger) {
    this.#log = log
  }

  add(name: string, undo: () => Promise<void> | void): void {
    this.#steps.push({ name, undo })
  }

  /** Forgets all steps: their effects now belong to the result. */
  keep(): void {
    this.#steps.length = 0
  }

  /** Undoes every step, the last first. A failing undo is logged and the others still run. */
  async run(): Promise<void> {
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step.undo()
      } catch (error) {
        this.#log.warn('undo step failed', { step: step.name, error: messageOf(error) })
      }
    }
  }
}
