#pragma once

#include <stdbool.h>

struct agent_end {
  int status;
  bool init_mode;
  bool end_requested; /* by a signal */
  bool not_executed;
  bool ends_with_agent; /* the agent has commanded that it must not be restarted */
  bool gate_opened;
  bool is_first; /* no agent ran before */
};

/* The next action of vminit. All but the last two end it: in init mode it powers off. */
enum after_agent {
  END_NOT_EXECUTABLE,
  END_AS_REQUESTED,
  END_FINISHED,       /* exited with 0 or refused its arguments: vminit passes the status on */
  END_WRONG_SETTINGS, /* a restart would fail alike */
  END_POLICY_LOST,
  RESTART_AT_ONCE,
  RESTART_DELAYED, /* the restart policy may give up */
};

/* Returns the first that applies, in this order. */
enum after_agent after_agent(const struct agent_end *end);

/* The exit status that a shell would report. */
int shell_status(int status);

#define END_TEXT_BYTES 64

/* Says how a process has ended. */
void describe_end(int status, char text[END_TEXT_BYTES]);
