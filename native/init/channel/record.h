#pragma once

#include <stdint.h>

#define RECORD_VERSION 1

/* The longest name of a stored descriptor, with its NUL. */
#define RECORD_NAME_BYTES 32

enum record_kind {
  /* vminit -> agent */
  RECORD_EXIT = 1,     /* a process was reaped */
  RECORD_OVERFLOW = 2, /* `sequence` exits before this record were lost */
  RECORD_SHUTDOWN = 3, /* stop in order, then send RECORD_POWER_OFF; `status` is the signal that requested it */
  /* agent -> vminit */
  RECORD_POWER_OFF = 16,      /* init mode: power off now */
  RECORD_EXIT_WITH = 17,      /* wrapper mode: the agent is about to exit, and vminit must exit with `status` */
  RECORD_RESTART = 18,        /* reserved */
  RECORD_END_WITH_AGENT = 19, /* the agent must not be restarted: at its death vminit ends, too */
  RECORD_STORE = 20,          /* keep the descriptor that comes with this record (SCM_RIGHTS) under `name` */
};

/* One message of the channel between vminit and the agent, in both directions. Native little endian. */
struct record {
  uint32_t version;
  uint32_t kind;
  union {
    struct {
      int32_t pid;
      int32_t status; /* RECORD_EXIT: the raw wait status */
      uint64_t boottime_ns;
      uint64_t utime_us;
      uint64_t stime_us;
      uint64_t maxrss_kib;
      uint64_t sequence; /* RECORD_EXIT: the number of the exit, from 1; a lost exit leaves a gap */
      uint64_t reserved;
    };
    char name[RECORD_NAME_BYTES]; /* RECORD_STORE: of letters a-z, digits and `-`, ended by a NUL */
  };
};

_Static_assert(sizeof(struct record) == 64, "a record is 64 bytes on the wire");
