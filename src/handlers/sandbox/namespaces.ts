import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import { emptyFolder } from '../storage/empty-folder.ts'
import type { Sandbox } from './sandbox-state.ts'

/** The longest host name that Linux holds (man 2 sethostname). */
const HOSTNAME_BYTES = 64

/** Throws INVALID_ARGUMENT for a host name that the kernel cannot hold: it accepts every byte but NUL. */
export function checkHostname(hostname: string): void {
  const bytes = Buffer.byteLength(hostname)
  if (bytes > HOSTNAME_BYTES) {
    throw new AgentError('INVALID_ARGUMENT', `hostname: ${bytes} bytes long, want at most ${HOSTNAME_BYTES}`)
  }
  if (hostname.includes('\0')) throw new AgentError('INVALID_ARGUMENT', 'hostname: contains a NUL byte')
}

/** Makes the ipc and uts namespaces of all containers, pinned in `folder`. An empty host name keeps the guest's. */
export async function pinNamespaces(options: {
  readonly os: Os
  readonly folder: string
  readonly hostname: string
  readonly onDestroy: UndoList
}): Promise<Sandbox['namespaces']> {
  const { os, folder, hostname, onDestroy } = options
  await emptyFolder(os, folder)
  // Register the undo before the step: a failed step may have pinned one of the two.
  onDestroy.add('namespaces', () => emptyFolder(os, folder))
  const pins = { ipc: `${folder}/ipc`, uts: `${folder}/uts` }
  await os.files.write(pins.ipc, '')
  await os.files.write(pins.uts, '')
  await os.mounts.pinNamespaces({ ...pins, hostname })
  return pins
}
