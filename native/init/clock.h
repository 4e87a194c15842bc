#pragma once

#include <stdint.h>

/* CLOCK_BOOTTIME in nanoseconds: the clock of records. */
uint64_t boottime_ns(void);

/* CLOCK_MONOTONIC in milliseconds: the clock of deadlines. */
int64_t monotonic_ms(void);
