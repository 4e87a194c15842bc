import type { UndoList } from '../../base/undo.ts'
import type { SplitSysctls } from '../../oci/sysctls.ts'
import type { Os } from '../../os/os.ts'

/** Sets the sysctls that a container asked for and that are the guest's. A creation that fails sets them back. */
export async function setGuestSysctls(os: Os, sysctls: SplitSysctls['guest'], undo: UndoList): Promise<void> {
  for (const { path, value } of sysctls) {
    const before = await os.files.readText(path)
    await os.files.write(path, value)
    undo.add(`sysctl ${path}`, () => os.files.write(path, before))
  }
}
