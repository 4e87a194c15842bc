#pragma once

#include <stdbool.h>

#include "kernel-command-line.h"

/* Whether `/` is what the kernel unpacked an initramfs into. */
bool root_is_initramfs(void);

/*
 * Mounts the root device and makes it `/`; the files of the initramfs are deleted, because their memory is not
 * given back otherwise. Powers off, with the reason, when there is no such root.
 */
void switch_to_root_device(const struct root_options *options);

/*
 * Puts a mount of the initramfs on top of itself and makes that `/`: pivot_root(2) refuses the bare rootfs, and
 * OCI runtimes need pivot_root. Powers off when that fails.
 */
void leave_bare_initramfs(void);
