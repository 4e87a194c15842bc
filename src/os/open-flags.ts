/** Constants of open(2) and openat2(2) that Node does not name. They are the same on x86-64 and arm64. */

/** Paths are relative to the working directory (fcntl.h). */
export const AT_FDCWD = -100
/** Opens the place alone, without a right to its content (fcntl.h). */
export const O_PATH = 0o10000000
/** No symbolic link is followed, the last one included (linux/openat2.h). */
export const RESOLVE_NO_SYMLINKS = 0x04
