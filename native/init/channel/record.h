#pragma once

#include <stdint.h>

/* docs/vminit.md describes each record. */
#define RECORD_VERSION 2

/* The longest name of a stored descriptor, with its NUL. */
#define RECORD_NAME_BYTES 32

enum record_kind {
  /* vminit -> agent */
  RECORD_EXIT = 1,         /* a process was reaped */
  RECORD_OVERFLOW = 2,     /* `sequence` exits before this record were lost */
  RECORD_SHUTDOWN = 3,     /* stop in order, then send RECORD_POWER_OFF; `status` is the signal that requested it */
  RECORD_STORE_RESULT = 4, /* the answer to RECORD_STORE and RECORD_UNSTORE: `name`, and 0 or an errno in `result` */
  RECORD_BACKLOG_END = 5,  /* all that previous agents left was sent */
  /* agent -> vminit */
  RECORD_POWER_OFF = 16,      /* init mode: power off now */
  RECORD_EXIT_WITH = 17,      /* wrapper mode: the agent is about to exit, and vminit must exit with `status` */
  RECORD_RESTART = 18,        /* reserved */
  RECORD_END_WITH_AGENT = 19, /* the agent must not be restarted: at its death vminit ends, too */
  RECORD_STORE = 20,          /* keep the descriptor that comes with this record (SCM_RIGHTS) under `name` */
  RECORD_UNSTORE = 21,        /* close the descriptor that is stored under `name` */
  RECORD_ACK_EXITS = 22,      /* the exits numbered up to `sequence` are handled: drop them */
  RECORD_KEEP_EXIT = 23,      /* keep the exit of `pid` for this agent and all later ones */
  RECORD_FORGET_EXIT = 24,    /* drop what RECORD_KEEP_EXIT has registered */
  RECORD_GATE_OPENED = 25,    /* the agent serves: its death does not count towards the limit of restarts */
  RECORD_CHECK_BROKER = 26,   /* the broker has not told of an answer for long: is it alive? */
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
