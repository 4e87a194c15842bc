import type { POSIXRlimit } from '../gen/oci.ts'

const NOFILE = 'RLIMIT_NOFILE'

/** What the kernel and systemd give a process by default. The agent's own limit is far higher and must not leak. */
const DEFAULT_NOFILE = { soft: 1024n, hard: 524_288n }

/**
 * RLIMIT_NOFILE for a process whose host set none: 1024 : 524288, but no more than we may give, which the text of our
 * own `/proc/self/limits` tells (an agent that is not in charge of its guest may lack CAP_SYS_RESOURCE).
 */
export function defaultNofile(limits: string): POSIXRlimit {
  const hard = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1]
  const allowed = hard === undefined ? DEFAULT_NOFILE.hard : BigInt(hard)
  return { Type: NOFILE, Hard: min(DEFAULT_NOFILE.hard, allowed), Soft: min(DEFAULT_NOFILE.soft, allowed) }
}

/** The limits, with RLIMIT_NOFILE named: the host's if it set one, else `fallback`. */
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
