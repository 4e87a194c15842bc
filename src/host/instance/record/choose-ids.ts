import { AgentError } from '../../../base/errors.ts'
import type { UidRange } from '../machine/uid-range.ts'

/** Those below are reserved (vsock(7)). */
const FIRST_CID = 3

/** The context id that is asked for, or the lowest one that no instance of this host has. */
export function chooseCid(wanted: number, taken: ReadonlySet<number>): number {
  if (wanted !== 0 && taken.has(wanted))
    throw new AgentError('FAILED_PRECONDITION', `context id ${wanted}: another instance has it`)
  if (wanted !== 0) return wanted
  for (let cid = FIRST_CID; ; cid++) if (!taken.has(cid)) return cid
}

/** The lowest user that no instance of this daemon has; 0 for the daemon's own. */
export function chooseUid(uids: UidRange | undefined, taken: ReadonlySet<number>): number {
  if (uids === undefined) return 0
  for (let uid = uids.first; uid < uids.first + uids.count; uid++) if (!taken.has(uid)) return uid
  throw new AgentError(
    'RESOURCE_EXHAUSTED',
    `uids: all ${uids.count} are used, want more in the configuration`,
  )
}
