import { errnoOf } from '../../base/errors.ts'
import { SIGKILL } from '../../base/signals.ts'
import type { Os } from '../os.ts'

/**
 * Sends a signal (SIGKILL unless named) to a process, or with a negative number to a process group. One that has ended
 * is fine.
 */
export function killIfAlive({ system }: Pick<Os, 'system'>, pid: number, signal = SIGKILL): void {
  try {
    system.signal(pid, signal)
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}
