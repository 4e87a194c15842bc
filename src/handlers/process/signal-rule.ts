import { LAST_SIGNAL } from '../../base/signals.ts'

const MASKS = ['SigBlk', 'SigIgn', 'SigCgt']

/**
 * Whether a process does something of its own with a signal: blocks, ignores or catches it, from the text of its
 * `/proc/PID/status` (undefined when it could not be read). The kernel drops signals that the first process of a
 * pid namespace leaves at their default, so only a handled SIGTERM can end it (behaviour spec, section C.5).
 */
export function handlesSignal(status: string | undefined, signal: number): boolean {
  if (status === undefined || signal > LAST_SIGNAL) return false
  if (signal === 0) return true
  const bit = 1n << BigInt(signal - 1)
  return MASKS.some((name) => (maskIn(status, name) & bit) !== 0n)
}

/** The mask of that name; 0 when there is none or it is no hexadecimal number. */
function maskIn(status: string, name: string): bigint {
  const line = status.split('\n').find((candidate) => candidate.startsWith(`${name}:`))
  const digits = line?.slice(name.length + 1).trim() ?? ''
  return /^[0-9a-fA-F]+$/.test(digits) ? BigInt(`0x${digits}`) : 0n
}
