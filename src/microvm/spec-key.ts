import { AgentError } from '../base/errors.ts'

/**
 * Names a component of a VM specification: a UUID (lower case), for components that some control plane knows by it,
 * or a short name. Both come from {@link specKey}.
 */
export type SpecKey = string & { readonly __specKey: true }

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const NAME = /^[a-z][a-z0-9_-]{0,40}$/

/** Checks a key. Throws INVALID_ARGUMENT for what is neither a UUID nor a name. */
export function specKey(text: string): SpecKey {
  const lower = text.toLowerCase()
  const valid = UUID.test(lower) ? lower : text
  if (!UUID.test(valid) && !NAME.test(valid)) {
    throw new AgentError('INVALID_ARGUMENT', `${text} is neither a UUID nor a component name`)
  }
  // The only place that makes keys: the check above is what the brand stands for.
  return valid as SpecKey
}

/**
 * The id of a component in QEMU's arguments and in QMP. Different keys give different ids. The prefix, because an id
 * has to begin with a letter, and because QEMU aborts when a device's id is also the name of one of its properties.
 */
export function qemuId(key: SpecKey): string {
  return UUID.test(key) ? `uuid-${key}` : `name-${key}`
}
