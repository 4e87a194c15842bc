import { AgentError } from '../../base/errors.ts'
import type { Storage } from '../../gen/agent.ts'

/**
 * Throws INVALID_ARGUMENT for a NUL in any text of a storage: the kernel would end it there and mount something else
 * than was asked for.
 */
export function checkText({ source, fstype, options, driverOptions, mountPoint }: Storage): void {
  const bad = [source, fstype, ...options, ...driverOptions].find((text) => text.includes('\0'))
  if (bad === undefined) return
  throw new AgentError('INVALID_ARGUMENT', `storage ${mountPoint}: ${JSON.stringify(bad)} contains a NUL`)
}
