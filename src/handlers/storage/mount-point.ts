import { AgentError } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'

/** PATH_MAX, which counts the closing NUL. */
const LONGEST_PATH_BYTES = 4095

/** The mount point without the slash at its end that hosts write behind a shared folder (spec E.5). */
export function withoutFinalSlash(mountPoint: string): string {
  return mountPoint.replace(/(?<=[^/])\/$/, '')
}

/** Hosts that run without root's rights put a folder of their user before every path in the guest (spec E.3.5). */
const USERS = '/run/user'
const USER_FOLDER = /^\/run\/user\/\d+(?=\/)/

/** The folder of a host's user that `path` begins with; empty for the paths of most hosts. */
export function userFolderOf(path: string): string {
  return USER_FOLDER.exec(path)?.[0] ?? ''
}

/** The folders of hosts' users that there are. */
export async function userFolders(files: Files): Promise<readonly string[]> {
  const folders = (await files.listFolders(USERS)).map((name) => `${USERS}/${name}`)
  return folders.filter((folder) => userFolderOf(`${folder}/`) === folder)
}

/**
 * Checks a mount point of the host's request: an absolute path in plain form, below one of `roots`, which may be in the
 * folder of a user, and no symbolic link on the way from there to it. Throws INVALID_ARGUMENT naming the path.
 */
export async function checkMountPoint(files: Files, path: string, roots: readonly string[]): Promise<void> {
  if (Buffer.byteLength(path) > LONGEST_PATH_BYTES) throw refused(`${path.slice(0, 64)}…`, 'it is too long')
  if (!isPlainAbsolute(path)) throw refused(path, 'it is not an absolute path without . and ..')
  const userFolder = userFolderOf(path)
  const root = roots.find((each) => path.startsWith(`${userFolder}${each}/`))
  if (root === undefined) throw refused(path, `it is not below ${roots.join(' or ')}`)
  // One call where all is well; the other finds out what is not.
  if (await files.isReachedWithoutLinks(path)) return
  await checkNoLinks(files, path, userFolder === '' ? root : USERS)
}

/**
 * Every component below the root must be a real directory as far as it exists; the last one may be anything but a link.
 */
async function checkNoLinks(files: Files, path: string, root: string): Promise<void> {
  const components = path.slice(root.length + 1).split('/')
  let place = root
  for (const [index, component] of components.entries()) {
    place = `${place}/${component}`
    const kind = (await files.lstat(place))?.kind
    if (kind === undefined) return
    if (kind === 'symlink') throw refused(path, `${place} is a symbolic link`)
    if (kind !== 'directory' && index < components.length - 1) throw refused(path, `${place} is no directory`)
  }
}

/** Whether a path is absolute, of no part that means another place, and not the root itself. */
export function isPlainAbsolute(path: string): boolean {
  const [first, ...components] = path.split('/')
  return (
    first === '' &&
    components.length > 0 &&
    !path.includes('\0') &&
    components.every((component) => component !== '' && component !== '.' && component !== '..')
  )
}

function refused(path: string, reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `mount point '${path}' refused: ${reason}`)
}
