import type { POSIXRlimit } from '../gen/oci.ts'

export const NOFILE = 'RLIMIT_NOFILE'

/**
 * Parses a `/proc/PID/limits`. A container without a limit gets the agent's own; the runtime's would be far lower.
 */
export function nofileIn(limits: string): POSIXRlimit | undefined {
  const [, soft, hard] = /^Max open files\s+(\d+)\s+(\d+)/m.exec(limits) ?? []
  if (soft === undefined || hard === undefined) return undefined
  return { Type: NOFILE, Soft: BigInt(soft), Hard: BigInt(hard) }
}

/** The limits with an RLIMIT_NOFILE: the host's if it set one, else `fallback`. */
export function withNofile(
  rlimits: readonly POSIXRlimit[],
  fallback: POSIXRlimit | undefined,
): POSIXRlimit[] {
  if (fallback === undefined || nofileOf(rlimits) !== undefined) return [...rlimits]
  return [...rlimits, fallback]
}

export function nofileOf(rlimits: readonly POSIXRlimit[]): POSIXRlimit | undefined {
  return rlimits.find(({ Type }) => Type === NOFILE)
}
