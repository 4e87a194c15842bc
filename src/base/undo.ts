import { errnoOf, messageOf } from './errors.ts'
import type { Logger } from './log.ts'

/**
 * The undo list of one multi-step operation: each step adds its undo right after it has succeeded. `run` calls them
 * backwards and never throws; `keep` forgets them once the operation has succeeded.
 */
export class UndoList {
  readonly #steps: { readonly name: string; readonly undo: () => Promise<void> | void }[] = []
  readonly #log: Logger

  constructor(log: Logger) {
    this.#log = log
  }

  /** Adds the undo of a step; `name` goes into the log when the undo fails. */
  add(name: string, undo: () => Promise<void> | void): void {
    this.#steps.push({ name, undo })
  }

  /** Forgets all steps: their effects now belong to the result. */
  keep(): void {
    this.#steps.length = 0
  }

  /** Undoes every step, the last first. A failing undo is logged and the others still run. */
  async run(): Promise<void> {
    await this.runAll()
  }

  /** As {@link run}. Returns what the steps have thrown. */
  async runAll(): Promise<readonly unknown[]> {
    const failures: unknown[] = []
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step.undo()
      } catch (error) {
        this.#log.warn('undo step failed', { step: step.name, error: messageOf(error) })
        failures.push(error)
      }
    }
    return failures
  }
}

/** Runs `work` with a new undo list, which is run when it fails. Otherwise the steps belong to the result. */
export async function undoOnFailure<T>(log: Logger, work: (undo: UndoList) => Promise<T>): Promise<T> {
  const undo = new UndoList(log)
  try {
    return await work(undo)
  } catch (error) {
    await undo.run()
    throw error
  }
}

/** An undo that removes something. The errno `absent` says that it is gone already, and is ignored. */
export async function removeIfPresent(absent: string, remove: () => Promise<void> | void): Promise<void> {
  try {
    await remove()
  } catch (error) {
    if (errnoOf(error) !== absent) throw error
  }
}

/** The time limit of one undo, which cannot use the caller's signal because that may have fired. */
const UNDO_MS = 5000

/**
 * Runs `undo`, waits at most 5 s for it, and throws `error`. A failure of the undo is dropped: it mostly has the same
 * cause as `error`, such as a lost connection, and says less about it.
 */
export async function undoAndThrow(
  error: unknown,
  undo: (signal: AbortSignal) => Promise<unknown>,
): Promise<never> {
  await undo(AbortSignal.timeout(UNDO_MS)).catch(() => {})
  throw error
}
