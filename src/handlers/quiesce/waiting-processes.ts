import type { Os } from '../../os/os.ts'
import { procStatFields } from '../../os/process/proc-stat.ts'
import type { Cgroup } from '../cgroup/cgroup.ts'

/** How many processes an error names. */
const NAMED_PROCESSES = 4

/** Processes in a wait of the kernel that no signal ends, other than the freezer's own. */
export async function waitingProcesses(os: Os, cgroup: Cgroup): Promise<readonly number[]> {
  const waiting: number[] = []
  for (const pid of await cgroup.members()) {
    const [stat = '', place = ''] = await os.files.readSmall([`/proc/${pid}/stat`, `/proc/${pid}/wchan`])
    if (procStatFields(stat)[0] === 'D' && !place.includes('refrigerator')) waiting.push(pid)
    if (waiting.length === NAMED_PROCESSES) break
  }
  return waiting
}
