#pragma once

#include <stdbool.h>

#include "../channel/record.h"

/* Reaps one process that has ended and describes it as a RECORD_EXIT. Returns false when there is none. */
bool reap_one(struct record *record);
