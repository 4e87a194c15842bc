#pragma once

#include "napi/addon.h"

bool watch_begin(struct addon *addon);

/* Deletes every watch. The handles on the loop close later (addon_handle_closed). */
void watch_end(struct addon *addon);

bool watch_is_pending(struct addon *addon, int fd);

/* Must be called before a descriptor without a watch is closed. */
void watch_forget(struct addon *addon, int fd);
