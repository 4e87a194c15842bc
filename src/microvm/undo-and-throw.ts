/** How long the undo may take: the caller's own signal may have fired. */
const UNDO_MS = 5000

/**
 * Undoes what was done before `error`, which is then thrown whatever becomes of that: an undo mostly fails for the same
 * reason, such as a connection that is gone, and says less about it.
 */
export async function undoAndThrow(
  error: unknown,
  undo: (signal: AbortSignal) => Promise<unknown>,
): Promise<never> {
  await undo(AbortSignal.timeout(UNDO_MS)).catch(() => {})
  throw error
}
