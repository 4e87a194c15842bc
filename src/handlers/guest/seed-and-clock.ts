import { AgentError } from '../../base/errors.ts'
import type { System } from '../../os/process/system.ts'

const MICROSECONDS = 1_000_000n

/** Numbers beyond it would lose digits on their way to the kernel, which refuses far smaller ones. */
const LATEST_SECOND = BigInt(Number.MAX_SAFE_INTEGER)

/**
 * SetGuestDateTime (spec C.31): what time it is, since 1970. Throws INVALID_ARGUMENT for what is no time, INTERNAL for
 * one that the kernel refuses, such as one before its own start.
 */
export function setGuestDateTime(system: System, seconds: bigint, microseconds: bigint): void {
  if (seconds < 0n || seconds > LATEST_SECOND) {
    throw new AgentError('INVALID_ARGUMENT', `Sec is ${seconds}, not from 0 to ${LATEST_SECOND}`)
  }
  if (microseconds < 0n || microseconds >= MICROSECONDS) {
    throw new AgentError('INVALID_ARGUMENT', `Usec is ${microseconds}, not from 0 to ${MICROSECONDS - 1n}`)
  }
  system.setTime(seconds * MICROSECONDS + microseconds)
}

/** ReseedRandomDev (spec C.28): random bytes of the host's. Throws INVALID_ARGUMENT when there are none. */
export async function reseedRandom(system: System, data: Uint8Array): Promise<void> {
  if (data.length === 0) throw new AgentError('INVALID_ARGUMENT', 'data: missing entropy data')
  await system.addEntropy(data)
}
