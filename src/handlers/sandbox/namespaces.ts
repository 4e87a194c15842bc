import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import { emptyFolder } from '../container/empty-folder.ts'
import type { Sandbox } from './sandbox-state.ts'

/**
 * Makes the ipc and uts namespaces that all containers join and pins them as files in `folder` (behaviour spec,
 * section C.25), the latter with the sandbox's host name; an empty one leaves the guest's.
 */
export async function pinNamespaces(options: {
  readonly os: Os
  readonly folder: string
  readonly hostname: string
  readonly undo: UndoList
  readonly signal: AbortSignal
}): Promise<Sandbox['namespaces']> {
  const { os, folder, hostname, undo, signal } = options
  await emptyFolder(os, folder)
  // Before the step itself: unshare may have pinned one of the two when it fails.
  undo.add('namespaces', () => emptyFolder(os, folder))
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

/**
 * Pins the pid namespace of process `pid` as the file `target`, by a mount: the number in its /proc path may come to
 * mean another process.
 */
export async function pinPidNamespace(options: {
  readonly os: Os
  readonly target: string
  readonly pid: number
  readonly undo: UndoList
}): Promise<void> {
  const { os, target, pid, undo } = options
  await os.files.write(target, '')
  undo.add('pid namespace file', () => os.files.removeFile(target))
  const source = `/proc/${pid}/ns/pid`
  await os.mounts.mount({ source, target, type: '', flags: ['bind'], data: '' })
  undo.add('pid namespace mount', () => os.mounts.unmount(target, { detach: true }))
}
