#pragma once

#include "kernel-command-line.h"

/*
 * Mounts the root device on `target` with the types of rootfstype=, or every type the kernel knows, in that
 * order. Powers off, with the reason of the last attempt, when none fits.
 */
void mount_root(const struct root_options *options, const char *target);
