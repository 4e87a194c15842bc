import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'

const RESOLV_CONF = '/etc/resolv.conf'

/**
 * Makes `lines` the guest's resolver configuration (behaviour spec, section G.7) by a bind mount, for the root may
 * be read-only. Does nothing without lines, or in a guest that has no such file.
 */
export async function setResolvConf(
  os: Os,
  sharedRoot: string,
  lines: readonly string[],
  undo: UndoList,
): Promise<void> {
  if (lines.length === 0) return
  const present = await os.files.stat(RESOLV_CONF)
  if (present === undefined || present.kind === 'directory') return
  const source = `${sharedRoot}/sandbox/resolv.conf`
  await os.files.makeDirectories(`${sharedRoot}/sandbox`)
  await os.files.write(source, lines.join('\n'), { mode: 0o644 })
  await os.mounts.mount({ source, target: RESOLV_CONF, type: '', flags: ['bind'], data: '' })
  undo.add('resolv.conf', () => os.mounts.unmount(RESOLV_CONF, { detach: true }))
}
