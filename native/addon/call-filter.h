#pragma once

#include <stdbool.h>

/* What a program and all that it starts are denied. The numbers are those of src/os/process/tools.ts. */
#define DENY_VSOCK 1    /* AF_VSOCK sockets: EPERM */
#define DENY_IO_URING 2 /* io_uring, whose operations no filter sees: ENOSYS, as from a kernel without it */

/*
 * Installs a seccomp filter in the calling process, which no descendant can remove; 0 denies nothing. Makes one system
 * call. Returns false with errno set.
 */
bool deny_calls(int denied);
