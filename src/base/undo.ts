import { abortable } from './abort.ts'
import { errnoOf, messageOf } from './errors.ts'
import type { Logger } from './log.ts'

/** The undo of each step of one operation, added right after the step. `keep` forgets them after a success. */
export class UndoList {
  readonly #steps: { readonly name: string; readonly undo: () => Promise<void> | void }[] = []
  readonly #log: Logger

  constructor(log: Logger) {
    this.#log = log
  }

  add(name: string, undo: () => Promise<void> | void): void {
    this.#steps.push({ name, undo })
  }

  keep(): void {
    this.#steps.length = 0
  }

  /** Undoes every step, the last first. Never throws: a failing undo is logged, and the others still run. */
  async run(): Promise<void> {
    await this.runAll()
  }

  /** As {@link run}; returns the errors of the steps. */
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

/** Runs the undo list when `work` fails. */
export async function undoOnFailure<T>(log: Logger, work: (undo: UndoList) => Promise<T>): Promise<T> {
  const undo = new UndoList(log)
  try {
    return await work(undo)
  } catch (error) {
    await undo.run()
    throw error
  }
}

/** Ignores the errno `absent`, which says that the object is gone already. */
export async function removeIfPresent(absent: string, remove: () => Promise<void> | void): Promise<void> {
  try {
    await remove()
  } catch (error) {
    if (errnoOf(error) !== absent) throw error
  }
}

/** Limits an undo, which cannot use the caller's signal because that may have fired. */
const UNDO_MS = 5000

/** Waits at most 5 s for `undo`, then throws `error`. The undo's own failure is dropped: mostly it has the same cause. */
export async function undoAndThrow(
  error: unknown,
  undo: (signal: AbortSignal) => Promise<unknown>,
): Promise<never> {
  const limit = AbortSignal.timeout(UNDO_MS)
  await abortable(undo(limit), limit).catch(() => {})
  throw error
}
