import { AgentError } from '../../base/errors.ts'

/** Folders beside the bundles, which no container may be named after. */
const RESERVED_IDS = ['sandbox', 'shared']

/**
 * Throws unless `id` may name a container (behaviour spec, section C.1): at least two characters, a letter or digit
 * first, then letters, digits, `.`, `-` and `_`. Such an id is safe as one component of a path.
 */
export function checkContainerId(id: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]+$/.test(id) || id.length > 255) {
    throw new AgentError('INTERNAL', `'${id}' is not a container id: letters, digits, '.', '-' and '_' only`)
  }
  if (RESERVED_IDS.includes(id)) throw new AgentError('INTERNAL', `container id '${id}' is reserved`)
}
