#pragma once

#include <stdnoreturn.h>

/* Kills every process, syncs and powers the guest off. For PID 1 only. */
noreturn void power_off(void);

/* Logs why the boot failed and powers the guest off. If PID 1 exited instead, the kernel would panic. */
noreturn void boot_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
