#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "store.h"

/* The agent as a child process. */
struct agent {
  pid_t pid;        /* 0 when none runs */
  int *start_errno; /* shared with the child: why the program could not be executed, or 0 */
};

/* How to start the agent. */
struct agent_launch {
  char *const *command;      /* ends with NULL; vminit appends arguments */
  bool init_mode;            /* adds `--init`, and a session of its own on the console */
  unsigned restarts;         /* how often it was restarted before */
  int channel_fd;            /* becomes its descriptor 3 */
  const struct store *store; /* its descriptors become 4, 5 and so on */
};

/* Initialises an agent that is not running. Returns false with errno set. */
bool agent_prepare(struct agent *agent);

/*
 * Starts the agent. Returns false with errno set when there is no child. A child that cannot execute the program exits
 * with 127 and sets `*start_errno`.
 */
bool agent_start(struct agent *agent, const struct agent_launch *launch);
