import type { Os } from '../../os/os.ts'
import { clearFolder, emptyFolder } from '../container/empty-folder.ts'
import { userFolders } from '../storage/mount-point.ts'

/**
 * Empties the folder that everything of a sandbox is in, and takes away what hosts without root's rights have in place of
 * it, in the folders of their users. Throws when a mount stays.
 */
export async function emptySharedRoot(os: Os, sharedRoot: string): Promise<void> {
  await emptyFolder(os, sharedRoot)
  for (const folder of await userFolders(os.files)) await clearFolder(os, `${folder}${sharedRoot}`)
}
