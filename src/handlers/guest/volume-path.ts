import { normalize } from 'node:path/posix'
import { AgentError } from '../../base/errors.ts'

/**
 * The path of a volume as the kernel lists it: no `..`, no slash at its end. Throws INVALID_ARGUMENT for what is no
 * absolute path.
 */
export function checkVolumePath(path: string): string {
  if (!path.startsWith('/')) {
    throw new AgentError('INVALID_ARGUMENT', `volume_guest_path '${path}' is not absolute`)
  }
  if (path.includes('\0')) {
    throw new AgentError('INVALID_ARGUMENT', `volume_guest_path ${JSON.stringify(path)} contains a NUL`)
  }
  return normalize(path).replace(/(?<=.)\/$/, '')
}

/** What is said of a volume that is not there: as a CSI node would. */
export function noSuchVolume(path: string): AgentError {
  return new AgentError('NOT_FOUND', `volume_guest_path ${path} does not exist`)
}
