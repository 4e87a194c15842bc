#pragma once

#include "../napi/addon.h"

/* Ends the relay thread and all its streams without calling their callbacks. */
void relay_end(struct addon *addon);
