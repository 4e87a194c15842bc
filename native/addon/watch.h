#pragma once

#include "addon.h"

void watch_begin(struct addon *addon);
/* Forgets every watch. The loop's handles are closed some time later (addon_handle_closed). */
void watch_end(struct addon *addon);
/* Whether anything waits for this descriptor. */
bool watch_is_pending(struct addon *addon, int fd);
