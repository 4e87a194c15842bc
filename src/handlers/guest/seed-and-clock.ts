import { AgentError, errnoOf } from '../../base/errors.ts'
import type { SetGuestDateTimeRequest } from '../../gen/agent.ts'
import type { System } from '../../os/process/system.ts'
import type { Call } from '../../state/request.ts'

const MICROSECONDS = 1_000_000n

/** The largest number that is passed to the kernel without losing digits; the kernel's own limit is far lower. */
const LATEST_SECOND = BigInt(Number.MAX_SAFE_INTEGER)

/** A time since 1970. */
type GuestDateTime = Pick<SetGuestDateTimeRequest, 'Sec' | 'Usec'>

/**
 * SetGuestDateTime: sets the clock to a time that was right `ageMs` ago. Returns by how many milliseconds the clock moved.
 * Throws INVALID_ARGUMENT for values out of range, INTERNAL for a time that the kernel refuses, such as one before its boot.
 */
export function setGuestDateTime(
  system: System,
  { Sec: seconds, Usec: microseconds }: GuestDateTime,
  ageMs: number,
): bigint {
  if (seconds < 0n || seconds > LATEST_SECOND) {
    throw new AgentError('INVALID_ARGUMENT', `Sec: ${seconds}, want 0 to ${LATEST_SECOND}`)
  }
  if (microseconds < 0n || microseconds >= MICROSECONDS) {
    throw new AgentError('INVALID_ARGUMENT', `Usec: ${microseconds}, want 0 to ${MICROSECONDS - 1n}`)
  }
  const wanted = seconds * MICROSECONDS + microseconds + BigInt(Math.round(ageMs * 1000))
  const stepMs = wanted / 1000n - BigInt(Date.now())
  system.setTime(wanted)
  return stepMs
}

/**
 * ReseedRandomDev: adds random bytes of the host to the kernel's pool, from which this process's generators take new seeds: Kata calls
 * it in each machine that it starts from a template. Throws INVALID_ARGUMENT for no bytes.
 */
export async function reseedRandom(
  system: System,
  data: Uint8Array,
  call: Pick<Call, 'beforeEffect'>,
): Promise<void> {
  if (data.length === 0) throw new AgentError('INVALID_ARGUMENT', 'data: missing entropy data')
  call.beforeEffect()
  await system.addEntropy(data)
  try {
    system.reseedGenerators()
  } catch (error) {
    // A Node with another OpenSSL. The kernel has the bytes, which is what the caller has asked for.
    if (errnoOf(error) !== 'ENOSYS') throw error
  }
}
