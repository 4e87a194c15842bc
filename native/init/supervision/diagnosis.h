#pragma once

#include <sys/types.h>

/* Logs what a process does, and where its main thread is in the kernel: /proc/PID/stat, wchan and stack. */
void log_kernel_stack(pid_t pid);
