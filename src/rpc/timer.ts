/** Calls back once after `ms`, unless the function it returns is called first. Tests put their own in. */
export type StartTimer = (ms: number, callback: () => void) => () => void

/** A {@link StartTimer} on the real clock. It does not keep the process alive. */
export const startTimer: StartTimer = (ms, callback) => {
  const timer = setTimeout(callback, ms)
  timer.unref()
  return () => clearTimeout(timer)
}
