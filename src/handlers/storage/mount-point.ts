import { AgentError } from '../../base/errors.ts'
import type { Files } from '../../os/files/files.ts'

/** PATH_MAX without the final NUL byte. */
const MAX_PATH_BYTES = 4095

/** Hosts append a slash to the mount point of a shared folder. */
export function withoutFinalSlash(mountPoint: string): string {
  return mountPoint.replace(/(?<=[^/])\/$/, '')
}

/** Rootless hosts prefix every path in the guest with the runtime folder of their user. */
const USERS = '/run/user'
const USER_FOLDER = /^\/run\/user\/\d+(?=\/)/

/** `/run/user/UID`; empty for the paths of a host that runs as root. */
export function userFolderOf(path: string): string {
  return USER_FOLDER.exec(path)?.[0] ?? ''
}

export async function userFolders(files: Files): Promise<readonly string[]> {
  const folders = (await files.listFolders(USERS)).map((name) => `${USERS}/${name}`)
  return folders.filter((folder) => userFolderOf(`${folder}/`) === folder)
}

/** Throws INVALID_ARGUMENT unless `path` is normalised, below a root (or one in a user folder) and free of symlinks. */
export async function checkMountPoint(files: Files, path: string, roots: readonly string[]): Promise<void> {
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    throw invalidMountPoint(`${path.slice(0, 64)}…`, `longer than ${MAX_PATH_BYTES} bytes`)
  if (!isPlainAbsolute(path)) throw invalidMountPoint(path, 'not a normalised absolute path')
  const userFolder = userFolderOf(path)
  const root = roots.find((each) => path.startsWith(`${userFolder}${each}/`))
  if (root === undefined) throw invalidMountPoint(path, `not below ${roots.join(' or ')}`)
  // One system call in the good case; the slow check names the component that is wrong.
  if (await files.isReachedWithoutLinks(path)) return
  await checkNoLinks(files, path, userFolder === '' ? root : USERS)
}

/** Existing components must be directories; the last one may be anything but a symbolic link. */
async function checkNoLinks(files: Files, path: string, root: string): Promise<void> {
  const components = path.slice(root.length + 1).split('/')
  let current = root
  for (const [index, component] of components.entries()) {
    current = `${current}/${component}`
    const kind = (await files.lstat(current))?.kind
    if (kind === undefined) return
    if (kind === 'symlink') throw invalidMountPoint(path, `${current} is a symbolic link`)
    if (kind !== 'directory' && index < components.length - 1)
      throw invalidMountPoint(path, `${current} is not a directory`)
  }
}

/** Whether a path is absolute and normalised (no empty component, `.` or `..`, no NUL byte) and is not `/`. */
export function isPlainAbsolute(path: string): boolean {
  const [first, ...components] = path.split('/')
  return (
    first === '' &&
    components.length > 0 &&
    !path.includes('\0') &&
    components.every((component) => component !== '' && component !== '.' && component !== '..')
  )
}

function invalidMountPoint(path: string, reason: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `mount point "${path}": ${reason}`)
}
