/** A batch takes at most a millisecond, and its answers fit into a socket's buffer many times. */
const BATCH_ITEMS = 64

/** Calls `act` with all items in order, a batch at a time, and lets the event loop run between batches. */
export async function inBatches<T>(items: readonly T[], act: (batch: readonly T[]) => void): Promise<void> {
  for (let start = 0; start < items.length; start += BATCH_ITEMS) {
    if (start > 0) await new Promise(setImmediate)
    act(items.slice(start, start + BATCH_ITEMS))
  }
}
