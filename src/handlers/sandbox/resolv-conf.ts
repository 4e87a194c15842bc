import { dirname } from 'node:path/posix'
import { AgentError } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Files } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'

const RESOLV_CONF = '/etc/resolv.conf'
/** The most symbolic links that are followed, as in the kernel (path_resolution(7)). */
const MAX_LINKS = 40

/** Bind-mounts `lines` over the guest's resolv.conf, because the root may be read-only. Does nothing without that file. */
export async function setResolvConf(
  os: Os,
  sharedRoot: string,
  lines: readonly string[],
  onDestroy: UndoList,
): Promise<void> {
  if (lines.length === 0) return
  const present = await os.files.stat(RESOLV_CONF)
  if (present === undefined || present.kind === 'directory') return
  const source = fileBelow(sharedRoot)
  await os.files.makeDirectories(dirname(source))
  await os.files.write(source, lines.join('\n'), { mode: 0o644 })
  const target = await linkedFile(os.files, RESOLV_CONF)
  await os.mounts.mount({ source, target, type: '', flags: ['bind'], data: '' })
  onDestroy.add('resolv.conf', () => os.mounts.unmount(target, { detach: true }))
}

/** Unmounts what the previous agent mounted over resolv.conf: the file below `sharedRoot`, which must still exist. */
export async function removeStaleResolvConf(os: Os, sharedRoot: string): Promise<void> {
  const target = await linkedFile(os.files, RESOLV_CONF)
  while (await isSameFile(os.files, target, fileBelow(sharedRoot))) {
    await os.mounts.unmount(target, { detach: true })
  }
}

/** The sandbox's file that is mounted over the guest's resolv.conf; undefined when none is. */
export async function mountedResolvConf({ files }: Os, sharedRoot: string): Promise<string | undefined> {
  const file = fileBelow(sharedRoot)
  return (await isSameFile(files, await linkedFile(files, RESOLV_CONF), file)) ? file : undefined
}

function fileBelow(sharedRoot: string): string {
  return `${sharedRoot}/sandbox/resolv.conf`
}

/** A bind mount has the device and inode numbers of its source. */
async function isSameFile(files: Files, path: string, other: string): Promise<boolean> {
  const [one, two] = [await files.stat(path), await files.stat(other)]
  if (one === undefined || two === undefined) return false
  return one.device === two.device && one.inode === two.inode
}

/** mount(2) follows symbolic links, but umount2(2) is told not to. Throws INTERNAL for links in a circle. */
async function linkedFile(files: Files, path: string): Promise<string> {
  let place = path
  for (let links = 0; (await files.lstat(place))?.kind === 'symlink'; links++) {
    if (links === MAX_LINKS)
      throw new AgentError('INTERNAL', `${path}: too many symbolic links`, { errno: 'ELOOP' })
    const target = await files.readLink(place)
    place = target.startsWith('/') ? target : `${dirname(place)}/${target}`
  }
  return place
}
