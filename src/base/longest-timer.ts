/** The longest time a timer can hold (2^31 − 1 ms, 24 days); Node fires a longer one at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1
