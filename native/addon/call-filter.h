#pragma once

#include <stdbool.h>

/* System calls denied to a program and its descendants. The numbers are those of src/os/process/tools.ts. */
#define DENY_VSOCK 1    /* AF_VSOCK sockets: EPERM */
#define DENY_IO_URING 2 /* io_uring, whose operations bypass seccomp: ENOSYS, as from a kernel without it */

/* Installs a seccomp filter for the process and its descendants by one system call. Returns false with errno set. */
bool deny_calls(int denied);
