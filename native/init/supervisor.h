#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdnoreturn.h>

#include "agent.h"
#include "channel.h"
#include "restart-policy.h"

/* No time is set, or no status. */
#define NEVER (-1)

/* How long the agent may take to stop in order. */
#define STOP_GRACE_MS 20000

/* All that vminit knows while it runs. */
struct supervisor {
  bool init_mode;       /* ends by powering the machine off; otherwise by exiting with the agent's status */
  char *const *command; /* the agent's command line, ends with NULL */
  struct agent agent;
  struct channel channel;
  struct restart_policy policy;
  unsigned restarts;
  int64_t start_at_ms;  /* when the next agent is due, or NEVER */
  int64_t stop_by_ms;   /* when the patience with a stopping agent ends, or NEVER */
  bool asked_to_end;    /* by a signal: the agent's next exit is the last */
  int commanded_status; /* what the agent told the wrapper to end with, or NEVER */
};

/* Keeps `command` running as the agent, reaps every process that ends, and ends as the mode says. */
noreturn void supervise(bool init_mode, char *const command[]);
