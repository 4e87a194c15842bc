#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The agent as a child process. */
struct agent {
  pid_t pid;         /* 0 when none runs */
  int *start_errno;  /* shared with the child: why it could not be executed, else 0 */
};

/* How to start it. */
struct agent_launch {
  char *const *command; /* ends with NULL; the arguments of vminit come after it */
  bool init_mode;       /* add `--init`, and give the agent a session of its own on the console */
  unsigned restarts;    /* how often it was restarted before */
  int channel_fd;       /* becomes its descriptor 3 */
};

/* Prepares an agent that is not running. Returns false with errno set. */
bool agent_prepare(struct agent *agent);

/*
 * Starts the agent. Returns false with errno set when there is no child; when the child cannot execute the
 * program it exits with 127 and `*start_errno` says why.
 */
bool agent_start(struct agent *agent, const struct agent_launch *launch);
