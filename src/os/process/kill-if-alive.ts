import { errnoOf } from '../../base/errors.ts'
import { SIGKILL } from '../../base/signals.ts'
import type { Os } from '../os.ts'

/** Sends a signal to a process, or to a process group when `pid` is negative. Does nothing when it has ended. */
export function killIfAlive({ system }: Pick<Os, 'system'>, pid: number, signal = SIGKILL): void {
  try {
    system.signal(pid, signal)
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}
