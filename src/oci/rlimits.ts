import type { POSIXRlimit } from '../gen/oci.ts'

/** What the kernel and systemd give a process by default. The agent's own limit is far higher and must not leak. */
const DEFAULT_NOFILE: POSIXRlimit = { Type: 'RLIMIT_NOFILE', Hard: 524288n, Soft: 1024n }

/** The limits, with RLIMIT_NOFILE named: the host's if it set one, else that of `inherited`, else 1024 : 524288. */
export function withNofile(
  rlimits: readonly POSIXRlimit[],
  inherited: readonly POSIXRlimit[] = [],
): POSIXRlimit[] {
  if (rlimits.some(isNofile)) return [...rlimits]
  return [...rlimits, inherited.find(isNofile) ?? DEFAULT_NOFILE]
}

function isNofile(rlimit: POSIXRlimit): boolean {
  return rlimit.Type === DEFAULT_NOFILE.Type
}
