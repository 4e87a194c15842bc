#pragma once

#include <sys/types.h>

/* Logs where the main thread of a process is in the kernel: /proc/PID/wchan and /proc/PID/stack. */
void log_kernel_stack(pid_t pid);
