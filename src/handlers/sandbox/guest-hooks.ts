import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Hook } from '../../gen/oci.ts'
import { GUEST_HOOK_TYPES, type GuestHooks, type GuestHookType } from '../../oci/hooks.ts'
import type { Files } from '../../os/files/files.ts'

const ANY_EXECUTE_BIT = 0o111

/**
 * The executable regular files in the sub-folders `prestart`, `poststart` and `poststop`, in the order of their names.
 * Symbolic links are ignored. Logs folders and entries that cannot be read, and never rejects.
 */
export async function findGuestHooks(files: Files, folder: string, log: Logger): Promise<GuestHooks> {
  const hooks: Record<GuestHookType, readonly Hook[]> = { prestart: [], poststart: [], poststop: [] }
  if (folder === '') return hooks
  const attempt = async (path: string, work: () => Promise<void>) => {
    await work().catch((error) => log.warn('guest hooks not found', { path, error: messageOf(error) }))
  }
  await attempt(folder, async () => {
    await checkFolder(files, folder)
    for (const type of GUEST_HOOK_TYPES) {
      const path = `${folder}/${type}`
      await attempt(path, async () => {
        hooks[type] = await hooksIn(files, path, type, log)
      })
    }
  })
  return hooks
}

async function checkFolder(files: Files, folder: string): Promise<void> {
  if (!folder.startsWith('/') || folder.split('/').includes('..')) {
    throw new Error('guest_hook_path is not an absolute path without ..')
  }
  const status = await files.stat(folder)
  if (status?.kind !== 'directory') throw new Error('guest_hook_path is not a directory of the guest')
}

async function hooksIn(files: Files, folder: string, type: GuestHookType, log: Logger): Promise<Hook[]> {
  const hooks: Hook[] = []
  for (const name of (await files.list(folder)).toSorted()) {
    const path = `${folder}/${name}`
    const status = await files.lstat(path)
    if (status?.kind === 'file' && (status.mode & ANY_EXECUTE_BIT) !== 0) {
      hooks.push({ Path: path, Args: [name, type], Env: [], Timeout: 0n })
    } else {
      log.warn('guest hook ignored: not an executable file', { path })
    }
  }
  return hooks
}
