#pragma once

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "../kept/store.h"

struct agent {
  pid_t pid;        /* 0: none runs */
  int *start_errno; /* shared with the child: why execvp(3) failed, or 0 */
  char **arguments;
  char *restarts_text; /* the argument of `--restarts` */
  bool init_mode;
  struct rlimit open_files; /* vminit's original limit, which the agent gets */
};

struct agent_launch {
  unsigned restarts;
  int channel_fd;
  int broker_fd;
  const struct store *store;
};

/* Raises vminit's own limit of open files for the store. Returns false with errno set. */
bool agent_prepare(struct agent *agent, char *const command[], bool init_mode);

/* Returns false with errno set. A child that cannot execute sets `*start_errno` and exits with 127. */
bool agent_start(struct agent *agent, const struct agent_launch *launch);
