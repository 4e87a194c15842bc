import { AgentError } from '../../base/errors.ts'
import type { Storage } from '../../gen/agent.ts'

/**
 * Throws INVALID_ARGUMENT when a text of a storage contains a NUL byte: the kernel would end the text there and mount
 * something other than what was requested.
 */
export function refuseNul({ source, fstype, options, driverOptions, mountPoint }: Storage): void {
  const text = [source, fstype, ...options, ...driverOptions].find((each) => each.includes('\0'))
  if (text === undefined) return
  throw new AgentError(
    'INVALID_ARGUMENT',
    `storage ${mountPoint}: ${JSON.stringify(text)} contains a NUL byte`,
  )
}

/** The prefix of the driver options that request encryption, such as `encryption_key=ephemeral`. */
const PREFIX = 'encryption_'

/**
 * Throws when the host requests encryption, whatever the driver: an unencrypted storage would be worse than none.
 * INVALID_ARGUMENT without `create_filesystem`, which encryption needs; UNIMPLEMENTED with it, because encryption needs
 * a helper that this guest does not have. The error names the option but never its value.
 */
export function refuseEncryption({ driverOptions, mountPoint }: Storage): void {
  const [name] = driverOptions.find((option) => option.startsWith(PREFIX))?.split('=', 1) ?? []
  if (name === undefined) return
  if (!driverOptions.includes('create_filesystem')) {
    throw new AgentError('INVALID_ARGUMENT', `storage ${mountPoint}: ${name} requires create_filesystem`)
  }
  const text = `storage ${mountPoint}: ${name} is not supported, this guest has no encryption helper`
  throw new AgentError('UNIMPLEMENTED', text)
}
