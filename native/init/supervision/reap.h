#pragma once

#include <stdbool.h>

#include "../channel/record.h"

/* Describes the reaped process as a RECORD_EXIT. Returns false when none has ended. */
bool reap_one(struct record *record);
