/** Calls back once after `ms`, unless the returned function is called before. */
export type StartTimer = (ms: number, callback: () => void) => () => void

/** A timer on the real clock; it does not keep the process alive. */
export const startTimer: StartTimer = (ms, callback) => {
  const timer = setTimeout(callback, ms)
  timer.unref()
  return () => clearTimeout(timer)
}
