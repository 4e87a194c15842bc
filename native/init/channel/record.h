#pragma once

#include <stdint.h>

/* docs/vminit.md describes each record. */
#define RECORD_VERSION 2

/* The longest name of a stored descriptor, with its NUL. */
#define RECORD_NAME_BYTES 32

/* In `result` of a command about the store: a success is not answered. */
#define ONLY_REFUSAL 1

enum record_kind {
  /* vminit -> agent */
  RECORD_EXIT = 1,          /* a process was reaped */
  RECORD_OVERFLOW = 2,      /* `sequence` exits before this record were lost */
  RECORD_SHUTDOWN = 3,      /* stop in order, then send RECORD_POWER_OFF; `status`: the signal that requested it */
  RECORD_STORE_RESULT = 4,  /* answers RECORD_STORE and RECORD_UNSTORE: `name`, and 0 or an errno in `result` */
  RECORD_BACKLOG_END = 5,   /* all records of the previous agents' time were sent */
  RECORD_FREEZE_RESULT = 6, /* answers the commands 27 to 30: `name`, and 0 or an errno in `result` */
  RECORD_THAWED = 7,        /* `name` is thawed, with 0 or an errno in `result`; without a name: nothing is frozen */
  /* agent -> vminit */
  RECORD_POWER_OFF = 16,        /* init mode: power off now */
  RECORD_END_WITH_AGENT = 19,   /* do not restart the agent: vminit ends with it */
  RECORD_STORE = 20,            /* keep the record's descriptor (SCM_RIGHTS) under `name` */
  RECORD_UNSTORE = 21,          /* close the descriptor `name` */
  RECORD_ACK_EXITS = 22,        /* the agent has handled the exits up to `sequence`: drop them */
  RECORD_KEEP_EXIT = 23,        /* keep the exit of `pid` for this agent and all later ones */
  RECORD_FORGET_EXIT = 24,      /* drop the registration of `pid` */
  RECORD_GATE_OPENED = 25,      /* the agent serves: its death does not count towards the restart limit */
  RECORD_CHECK_BROKER = 26,     /* the broker has reported no outcome for long: check that it is alive */
  RECORD_HOLD_FILE_SYSTEM = 27, /* keep the record's descriptor, a folder of the file system `name` */
  RECORD_HOLD_CGROUP = 28,      /* keep the record's descriptor, the freeze file of the cgroup `name` */
  RECORD_ARM_THAW = 29,         /* thaw everything after `sequence` ms, counted anew by each such command */
  RECORD_FREEZE = 30,           /* freeze the file system or the cgroup `name` */
  RECORD_THAW = 31,             /* thaw everything, or with 1 in `pid` the file systems alone */
};

/* A message of the channel, in either direction; little endian. */
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
      /* RECORD_EXIT: the number of the exit, from 1, or 0 for a kept one; a lost exit leaves a gap */
      uint64_t sequence;
      uint64_t reserved;
    };
    struct {
      char name[RECORD_NAME_BYTES]; /* of letters a-z, digits and `-`, ended by a NUL */
      int32_t result;
    };
  };
};

_Static_assert(sizeof(struct record) == 64, "a record is 64 bytes on the wire");
