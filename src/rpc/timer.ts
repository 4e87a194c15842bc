/** Calls back once after `ms`, unless the function that it returns is called before. Tests pass their own. */
export type StartTimer = (ms: number, callback: () => void) => () => void

/** A {@link StartTimer} on the real clock. It does not keep the process alive. */
export const startTimer: StartTimer = (ms, callback) => {
  const timer = setTimeout(callback, ms)
  timer.unref()
  return () => clearTimeout(timer)
}
