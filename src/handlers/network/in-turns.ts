/** Items that are worked on before the loop gets its turn: a millisecond or so. */
const ITEMS_A_TURN = 128

/** Does something with each item in order, without holding up the loop for long. */
export async function inTurns<T>(items: readonly T[], act: (item: T) => void): Promise<void> {
  for (const [index, item] of items.entries()) {
    if (index > 0 && index % ITEMS_A_TURN === 0) await new Promise(setImmediate)
    act(item)
  }
}
