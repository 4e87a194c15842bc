#pragma once

#include <stdbool.h>

#include "record.h"

/* Reaps one process that has ended and describes it. Returns false when there is none. Never blocks. */
bool reap_one(struct record *record);
