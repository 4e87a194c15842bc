import { errnoOf } from '../../base/errors.ts'
import type { Os } from '../../os/os.ts'

const SIGKILL = 9

/** Sends SIGKILL to a process, or with a negative number to a process group. One that is gone is what is wanted. */
export function killIfThere({ system }: Pick<Os, 'system'>, pid: number): void {
  try {
    system.signal(pid, SIGKILL)
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}
