#pragma once

#include <stdint.h>
#include <time.h>

/* CLOCK_BOOTTIME in nanoseconds: the clock of records. */
static inline uint64_t boottime_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC in milliseconds: the clock of deadlines. */
static inline int64_t monotonic_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
