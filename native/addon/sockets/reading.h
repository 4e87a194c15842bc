#pragma once

#include "../napi/addon.h"

/* Ends the reading of every socket. The handles on the loop close later (addon_handle_closed). */
void readings_end(struct addon *addon);
