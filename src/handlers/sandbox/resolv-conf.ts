import { dirname } from 'node:path/posix'
import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Files } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'

const RESOLV_CONF = '/etc/resolv.conf'
/** As many as the kernel follows (man 7 path_resolution). */
const MAX_LINKS = 40

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
  const source = fileBelow(sharedRoot)
  await os.files.makeDirectories(dirname(source))
  await os.files.write(source, lines.join('\n'), { mode: 0o644 })
  const target = await linkedFile(os.files, RESOLV_CONF)
  await os.mounts.mount({ source, target, type: '', flags: ['bind'], data: '' })
  undo.add('resolv.conf', () => os.mounts.unmount(target, { detach: true }))
}

/**
 * Takes away the mounts that an agent which died has left on the guest's resolver configuration: those that show the
 * file below `sharedRoot`, which must still be there. The configuration of the guest itself is left alone.
 */
export async function removeStaleResolvConf(os: Os, sharedRoot: string): Promise<void> {
  const target = await linkedFile(os.files, RESOLV_CONF)
  while (await isSameFile(os.files, target, fileBelow(sharedRoot))) {
    await os.mounts.unmount(target, { detach: true })
  }
}

function fileBelow(sharedRoot: string): string {
  return `${sharedRoot}/sandbox/resolv.conf`
}

/** A bind mount of a file is that file, by its numbers. */
async function isSameFile(files: Files, path: string, other: string): Promise<boolean> {
  const [one, two] = [await files.stat(path), await files.stat(other)]
  if (one === undefined || two === undefined) return false
  return one.device === two.device && one.inode === two.inode
}

/**
 * The file at the end of the links that `path` may be: a mount follows them, an unmount does not. Throws for links in
 * a circle.
 */
async function linkedFile(files: Files, path: string): Promise<string> {
  let place = path
  for (let links = 0; (await files.lstat(place))?.kind === 'symlink'; links++) {
    if (links === MAX_LINKS) throw new AgentError('INTERNAL', `${path}: too many links`, { errno: 'ELOOP' })
    const target = await files.readLink(place)
    place = target.startsWith('/') ? target : `${dirname(place)}/${target}`
  }
  return place
}
