#pragma once

#include <stdbool.h>

#include "kernel-command-line.h"

/* Whether `/` is the initramfs. */
bool root_is_initramfs(void);

/*
 * Mounts the root device, makes it `/` and deletes the files of the initramfs, which frees their memory. Powers off
 * when it fails.
 */
void switch_to_root_device(const struct boot_options *options);

/*
 * Bind-mounts the initramfs on itself and makes the mount `/`: OCI runtimes call pivot_root(2), which refuses the
 * kernel's first root mount. Powers off when it fails.
 */
void bind_initramfs(void);
