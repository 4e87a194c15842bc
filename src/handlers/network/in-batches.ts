/** Items of one batch: a millisecond of work at most, and far less than what a socket's buffer holds answers for. */
const BATCH_ITEMS = 64

/** Does something with all items, a batch at a time and in order; the loop has its turn in between. */
export async function inBatches<T>(items: readonly T[], act: (batch: readonly T[]) => void): Promise<void> {
  for (let start = 0; start < items.length; start += BATCH_ITEMS) {
    if (start > 0) await new Promise(setImmediate)
    act(items.slice(start, start + BATCH_ITEMS))
  }
}
