import { AgentError } from '../../base/errors.ts'
import type { Storage } from '../../gen/agent.ts'

/** What asks for it in `driver_options`: `encryption_key=ephemeral`, and whatever goes with the key. */
const PREFIX = 'encryption_'

/**
 * Throws for a storage that shall be encrypted, whatever its driver: to leave it as plain text would be worse than no
 * storage. INVALID_ARGUMENT without `create_filesystem`, which encryption needs (spec E.3.1); UNIMPLEMENTED with it,
 * for that is a helper's work and this guest has none. The sentence names the option, never its value.
 */
export function refuseEncryption({ driverOptions, mountPoint }: Storage): void {
  const [name] = driverOptions.find((option) => option.startsWith(PREFIX))?.split('=', 1) ?? []
  if (name === undefined) return
  if (!driverOptions.includes('create_filesystem')) {
    throw new AgentError('INVALID_ARGUMENT', `storage ${mountPoint}: ${name} needs create_filesystem`)
  }
  const text = `storage ${mountPoint}: ${name}: this guest has no helper that encrypts`
  throw new AgentError('UNIMPLEMENTED', text)
}
