#pragma once

#include <sys/types.h>

/* Logs /proc/PID/stat, wchan and stack. */
void log_kernel_stack(pid_t pid);
