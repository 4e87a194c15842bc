#pragma once

#include "addon.h"

/* Ends the relay thread and every stream it has; nobody is called back. */
void relay_end(struct addon *addon);
