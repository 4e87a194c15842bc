#pragma once

#include <stdbool.h>

#include "kernel-command-line.h"

bool root_is_initramfs(void);

/* Makes the root device `/` and deletes the initramfs's files, to free memory. Powers off on failure. */
void switch_to_root_device(const struct boot_options *options);

/* Binds the initramfs on itself, because pivot_root(2) refuses the kernel's first mount. Powers off on failure. */
void bind_initramfs(void);
