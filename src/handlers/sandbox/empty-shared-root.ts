import type { Os } from '../../os/os.ts'
import { clearFolder, emptyFolder } from '../storage/empty-folder.ts'
import { userFolders } from '../storage/mount-point.ts'

/** Also removes the shared folders below `/run/user/UID`, which rootless hosts name. Throws when a mount stays. */
export async function emptySharedRoot(os: Os, sharedRoot: string): Promise<void> {
  await emptyFolder(os, sharedRoot)
  for (const folder of await userFolders(os.files)) await clearFolder(os, `${folder}${sharedRoot}`)
}
