#pragma once

#include <stdnoreturn.h>

/* Ends the guest: kills every process, syncs, powers off. For PID 1 only. */
noreturn void power_off(void);

/* Says why the guest cannot go on, and powers it off: PID 1 must neither exit nor let the kernel panic. */
noreturn void boot_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
