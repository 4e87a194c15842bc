import { constants } from 'node:fs'
import { succeeded } from '../../errors.ts'
import type { Native } from '../../native.ts'

const AT_FDCWD = -100

/** Of linux/openat2.h. */
const RESOLVE_NO_SYMLINKS = 0x04

/** One ioctl(2) about the file system that is mounted at a folder. `call` names it in the error. */
export async function controlFileSystem(
  native: Native,
  mountPoint: string,
  control: { readonly call: string; readonly request: number; readonly argument: Uint8Array },
): Promise<void> {
  // The open is made on this thread: a fifo that somebody bound there must not make it wait for a writer.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK
  const how = { flags, mode: 0, resolve: RESOLVE_NO_SYMLINKS }
  const folder = succeeded('open', mountPoint, native.openAt2(AT_FDCWD, mountPoint, how))
  try {
    succeeded(control.call, mountPoint, await native.ioctl(folder, control.request, control.argument))
  } finally {
    native.close(folder)
  }
}
