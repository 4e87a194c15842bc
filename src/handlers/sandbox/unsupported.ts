import { AgentError } from '../../base/errors.ts'
import type { SharedMount } from '../../gen/agent.ts'

/** Throws UNIMPLEMENTED when a request wants mounts of other containers. */
export function refuseSharedMounts(mounts: readonly SharedMount[]): void {
  if (mounts.length === 0) return
  const names = mounts.map(({ name }) => name).join(', ')
  throw new AgentError('UNIMPLEMENTED', `shared mounts are not supported: ${names}`)
}
