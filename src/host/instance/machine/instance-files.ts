import { chmodSync, chownSync, mkdirSync } from 'node:fs'
import { chmod, copyFile, mkdir, open, rename, rm, stat, symlink, unlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { OVMF } from '../../qemu/qemu-arguments.ts'
import { fileError } from '../snapshots/overlay-file.ts'

/** The folder in an instance's folder in which its processes make their sockets. They can write nowhere else. */
export const OWN_FOLDER = 'run'

/**
 * What the daemon and the holder write is in a folder that the instance's user may pass, and no one else. Blocks as the registry does,
 * which has just written to this disk.
 */
export function makeFolders(folder: string, uid: number): void {
  const own = join(folder, OWN_FOLDER)
  try {
    mkdirSync(own, { mode: 0o700, recursive: true })
    if (uid === 0) return
    chownSync(folder, 0, uid)
    chmodSync(folder, 0o710)
    chownSync(own, uid, uid)
  } catch (error) {
    throw fileError(own, error)
  }
}

/** Makes a folder of symbolic links anew. A process that may pass the instance's folder can open what they lead to. */
export async function makeLinks(folder: string, targets: Readonly<Record<string, string>>): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true })
    await mkdir(folder)
    await chmod(folder, 0o711)
    for (const [name, target] of Object.entries(targets)) await symlink(target, join(folder, name))
  } catch (error) {
    throw fileError(folder, error)
  }
}

/** Removes files, and folders whose paths end in a slash. In this instance's folder, also when its steps were written down in a folder that has been moved or copied since. */
export async function removeFiles(folder: string, paths: readonly string[]): Promise<void> {
  const name = `/${basename(folder)}/`
  for (const path of paths) {
    const at = path.lastIndexOf(name)
    const file = at < 0 ? path : join(folder, path.slice(at + name.length))
    if (file.endsWith('/')) {
      await rm(file, { recursive: true, force: true })
      continue
    }
    // What is a folder by now, its processes have made; it goes with the instance's folder.
    await unlink(file).catch((error) => {
      if (!['ENOENT', 'EISDIR'].includes(errnoOf(error) ?? '')) throw error
    })
  }
}

/** The name of the file with UEFI's variables, in the folder of what keeps it. */
export const VARIABLES = 'uefi-variables.fd'

/** Makes the file with UEFI's variables unless it is there, whole or not at all. Throws FAILED_PRECONDITION without OVMF. */
export async function makeVariables(path: string, from: string = OVMF.variables): Promise<void> {
  if (await stat(path).catch(() => undefined)) return
  const made = `${path}.new`
  await copyFile(from, made).catch(async (error) => {
    await rm(made, { force: true })
    if (errnoOf(error) !== 'ENOENT') throw fileError(path, error)
    const text = `${from}: no such file; ./microvm doctor names its package`
    throw new AgentError('FAILED_PRECONDITION', `board.firmware: ${text}`, { cause: error })
  })
  try {
    await using file = await open(made, 'r+')
    await file.chmod(0o600)
    await file.sync()
    await rename(made, path)
  } catch (error) {
    throw fileError(path, error)
  }
}
