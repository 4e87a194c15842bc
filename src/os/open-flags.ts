/** Constants of open(2) and openat2(2) that Node does not name. They are the same on x86-64 and arm64. */

/** Makes paths relative to the working directory (fcntl.h). */
export const AT_FDCWD = -100
/** Opens only the place, without access to its content (fcntl.h). */
export const O_PATH = 0o10000000
/** Follows no symbolic link, the last one included (linux/openat2.h). */
export const RESOLVE_NO_SYMLINKS = 0x04
