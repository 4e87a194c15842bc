#pragma once

#include "napi/addon.h"

/* Allocates the table of an addon's watches. Returns false when there is no memory. */
bool watch_begin(struct addon *addon);

/* Deletes every watch. The handles on the loop are closed later (addon_handle_closed). */
void watch_end(struct addon *addon);

/* Whether a watch of this descriptor exists. */
bool watch_is_pending(struct addon *addon, int fd);

/* Drops what is known of a descriptor without a watch, before it is closed. */
void watch_forget(struct addon *addon, int fd);
