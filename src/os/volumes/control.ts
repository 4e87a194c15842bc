import { succeeded } from '../errors.ts'
import type { Native } from '../native.ts'

const AT_FDCWD = -100

const O_RDONLY = 0
/** Of linux/openat2.h. */
const RESOLVE_NO_SYMLINKS = 0x04

/** One ioctl(2) about the file system that is mounted at a folder. `call` names it in the error. */
export async function controlFileSystem(
  native: Native,
  mountPoint: string,
  control: { readonly call: string; readonly request: number; readonly argument: Uint8Array },
): Promise<void> {
  const how = { flags: O_RDONLY, mode: 0, resolve: RESOLVE_NO_SYMLINKS }
  const folder = succeeded('open', mountPoint, native.openAt2(AT_FDCWD, mountPoint, how))
  try {
    succeeded(control.call, mountPoint, await native.ioctl(folder, control.request, control.argument))
  } finally {
    native.close(folder)
  }
}
