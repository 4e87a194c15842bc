#pragma once

#include <stdint.h>

/* One message of the channel between vminit and the agent, both ways, native little endian. */

#define RECORD_VERSION 1

enum record_kind {
  /* vminit -> agent */
  RECORD_EXIT = 1,     /* a process was reaped */
  RECORD_OVERFLOW = 2, /* `sequence` exits before this record were lost */
  RECORD_SHUTDOWN = 3, /* stop in order, then answer RECORD_POWER_OFF; `status` is the signal that asked for it */
  /* agent -> vminit */
  RECORD_POWER_OFF = 16, /* init mode: power off now */
  RECORD_EXIT_WITH = 17, /* the agent is about to exit and vminit is to end with `status` */
  RECORD_RESTART = 18,   /* reserved */
};

struct record {
  uint32_t version;
  uint32_t kind;
  int32_t pid;
  int32_t status; /* RECORD_EXIT: the raw wait status */
  uint64_t boottime_ns;
  uint64_t utime_us;
  uint64_t stime_us;
  uint64_t maxrss_kib;
  uint64_t sequence; /* RECORD_EXIT: 1 for the first exit; a lost exit leaves a gap */
  uint64_t reserved;
};

_Static_assert(sizeof(struct record) == 64, "a record is 64 bytes on the wire");
