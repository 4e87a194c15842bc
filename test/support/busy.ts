import { availableParallelism, loadavg } from 'node:os'

/** Whether the machine has far more to do than it can. */
export function isBusy(): boolean {
  const [load = 0] = loadavg()
  return load > 2 * availableParallelism()
}
