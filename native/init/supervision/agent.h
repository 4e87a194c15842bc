#pragma once

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "store.h"

/* The agent as a child process. */
struct agent {
  pid_t pid;           /* 0 when none runs */
  int *start_errno;    /* shared with the child: why the program could not be executed, or 0 */
  char **arguments;    /* its command line */
  char *restarts_text; /* the argument of `--restarts` */
  bool init_mode;
  struct rlimit open_files; /* vminit's limit before it raised it, which the agent has */
};

/* What one start of the agent is given. */
struct agent_launch {
  unsigned restarts; /* how often it was restarted before */
  int channel_fd;
  int broker_fd; /* the agent's end of its control socket to the broker */
  const struct store *store;
};

/*
 * Initialises an agent that is not running, with its command line: `command`, which ends with NULL, and the arguments that
 * vminit appends, with `--init` in init mode. Raises vminit's own limit of open files, for the store. Returns false with
 * errno set.
 */
bool agent_prepare(struct agent *agent, char *const command[], bool init_mode);

/*
 * Starts the agent, which allocates nothing here. Returns false with errno set when there is no child. A child that cannot
 * execute the program exits with 127 and sets `*start_errno`.
 */
bool agent_start(struct agent *agent, const struct agent_launch *launch);
