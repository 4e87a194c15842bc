import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import { emptyFolder } from '../container/empty-folder.ts'
import type { Sandbox } from './sandbox-state.ts'

/**
 * Makes the ipc and uts namespaces that all containers join, and pins them as files in `folder` (behaviour spec, section
 * C.25). The uts namespace gets the host name; an empty one keeps the guest's.
 */
export async function pinNamespaces(options: {
  readonly os: Os
  readonly folder: string
  readonly hostname: string
  readonly onDestroy: UndoList
  readonly signal: AbortSignal
}): Promise<Sandbox['namespaces']> {
  const { os, folder, hostname, onDestroy, signal } = options
  await emptyFolder(os, folder)
  // Before the step itself: a failing unshare may have pinned one of the two.
  onDestroy.add('namespaces', () => emptyFolder(os, folder))
  const pins = { ipc: `${folder}/ipc`, uts: `${folder}/uts` }
  await os.files.write(pins.ipc, '')
  await os.files.write(pins.uts, '')
  const name = hostname === '' ? [] : ['--', hostname]
  const result = await os.tools.run(
    ['/usr/bin/unshare', `--ipc=${pins.ipc}`, `--uts=${pins.uts}`, '/bin/hostname', ...name],
    { signal },
  )
  if (result.exitCode === 0) return pins
  throw new AgentError('INTERNAL', `namespaces for host name '${hostname}': ${result.stderr.trim()}`)
}
