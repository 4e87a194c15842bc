import { AgentError } from '../../base/errors.ts'
import type { Storage } from '../../gen/agent.ts'

/** The kernel would end a text at a NUL byte and mount something else. Throws INVALID_ARGUMENT. */
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
 * Refuses encryption for every driver, because an unencrypted storage would be worse than none. Throws INVALID_ARGUMENT
 * without `create_filesystem`, UNIMPLEMENTED with it. The error never contains the option's value.
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
