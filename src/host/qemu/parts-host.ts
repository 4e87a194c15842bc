import { AgentError } from '../../base/errors.ts'
import type { SpecKey } from '../spec/spec-key.ts'

/** The facts of this host that the parts of a machine depend on besides the specification. */
export interface PartsHost {
  /** Sockets of the daemons that serve backends (passt, the vsock daemon, virtiofsd), by the backend's key. */
  readonly sockets?: ReadonlyMap<SpecKey, string> | undefined
  /** The context id of a guest whose specification leaves the choice to the daemon. */
  readonly cid?: number | undefined
  /** Paths of those files that are block devices. */
  readonly blockDevices?: ReadonlySet<string> | undefined
}

export function socketOf({ sockets }: PartsHost, key: SpecKey): string {
  const path = sockets?.get(key)
  if (path === undefined) throw new AgentError('INTERNAL', `backend ${key}: no socket of its daemon`)
  return path
}
