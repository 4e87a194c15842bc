import type { POSIXRlimit } from '../gen/oci.ts'

/** The kind of limit that the agent sets for a container without one. */
export const NOFILE = 'RLIMIT_NOFILE'

/**
 * The RLIMIT_NOFILE in the text of a `/proc/PID/limits`; undefined when it has none. The agent's own is that of a
 * container without one, which otherwise got the far lower one of the OCI runtime.
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

/** The RLIMIT_NOFILE among some limits. */
export function nofileOf(rlimits: readonly POSIXRlimit[]): POSIXRlimit | undefined {
  return rlimits.find(({ Type }) => Type === NOFILE)
}
