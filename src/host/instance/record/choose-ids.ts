import { AgentError } from '../../../base/errors.ts'

/** Those below are reserved (vsock(7)). */
const FIRST_CID = 3

/** The context id that is asked for, or the lowest one that no instance of this host has. */
export function chooseCid(wanted: number, taken: ReadonlySet<number>): number {
  if (wanted !== 0 && taken.has(wanted))
    throw new AgentError('FAILED_PRECONDITION', `context id ${wanted}: another instance has it`)
  if (wanted !== 0) return wanted
  for (let cid = FIRST_CID; ; cid++) if (!taken.has(cid)) return cid
}
