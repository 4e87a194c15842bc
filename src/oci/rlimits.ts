import type { POSIXRlimit } from '../gen/oci.ts'

const NOFILE = 'RLIMIT_NOFILE'

/** The default of the kernel and systemd. Containers must not inherit the agent's own limit, which is far higher. */
const DEFAULT_NOFILE = { soft: 1024n, hard: 524_288n }

/**
 * RLIMIT_NOFILE for a process without one: 1024 : 524288, capped to the agent's own hard limit, which is read from the
 * text of `/proc/self/limits` (an agent that is not init may lack CAP_SYS_RESOURCE).
 */
export function defaultNofile(limits: string): POSIXRlimit {
  const hard = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1]
  const allowed = hard === undefined ? DEFAULT_NOFILE.hard : BigInt(hard)
  return { Type: NOFILE, Hard: min(DEFAULT_NOFILE.hard, allowed), Soft: min(DEFAULT_NOFILE.soft, allowed) }
}

/** The limits with an RLIMIT_NOFILE: the host's if it set one, else `fallback`. */
export function withNofile(
  rlimits: readonly POSIXRlimit[],
  fallback: POSIXRlimit | undefined,
): POSIXRlimit[] {
  if (fallback === undefined || nofileOf(rlimits) !== undefined) return [...rlimits]
  return [...rlimits, fallback]
}

/** The RLIMIT_NOFILE among some limits. */
export function nofileOf(rlimits: readonly POSIXRlimit[]): POSIXRlimit | undefined {
  return rlimits.find(({ Type }) => Type === NOFILE)
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b
}
