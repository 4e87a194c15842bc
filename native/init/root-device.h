#pragma once

#include <stdbool.h>

/* Waits until the block device `path` can be opened. Returns false with errno set: ETIMEDOUT after `limit_ms`,
 * ENOTBLK when something else is there. */
bool wait_for_device(const char *path, int limit_ms);
