import { constants } from 'node:fs'
import { checkErrno } from '../../errors.ts'
import type { Native } from '../../native.ts'
import { AT_FDCWD, RESOLVE_NO_SYMLINKS } from '../../open-flags.ts'

/** `call` names the ioctl(2) in the error. */
export async function controlFileSystem(
  native: Native,
  mountPoint: string,
  control: { readonly call: string; readonly request: number; readonly argument: Uint8Array },
): Promise<void> {
  // The open runs on this thread and must not block, but a fifo may be mounted at the path.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK
  const how = { flags, mode: 0, resolve: RESOLVE_NO_SYMLINKS }
  const folder = checkErrno('open', mountPoint, native.openAt2(AT_FDCWD, mountPoint, how))
  try {
    checkErrno(control.call, mountPoint, await native.ioctl(folder, control.request, control.argument))
  } finally {
    native.close(folder)
  }
}
