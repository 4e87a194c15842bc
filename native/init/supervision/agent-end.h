#pragma once

#include <stdbool.h>

/* What vminit knows when the agent has ended. */
struct agent_end {
  int status;           /* the wait status */
  bool init_mode;       /* vminit is the init of a guest */
  bool has_status;      /* the agent has commanded vminit's exit status */
  bool end_requested;   /* a signal has asked vminit to end */
  bool not_executed;    /* the agent's program could not be executed */
  bool ends_with_agent; /* the agent has commanded that it is not restarted */
  bool gate_opened;     /* the agent has served */
  bool is_first;        /* no agent was before it */
};

/* What vminit does then. All but the last two end it: they power a guest off, and exit otherwise. */
enum after_agent {
  END_AS_COMMANDED,
  END_NOT_EXECUTABLE, /* a restart would not help */
  END_AS_REQUESTED,
  END_FINISHED, /* the agent has done its work, or refused its arguments: whoever started vminit gets its status */
  END_WRONG_SETTINGS, /* they would be wrong for each agent that follows */
  END_POLICY_LOST,
  RESTART_AT_ONCE, /* it has served, and is worth another start however often it dies */
  RESTART_DELAYED, /* after the delay of the restart policy, which may give up */
};

/* The first that holds, in this order. */
enum after_agent after_agent(const struct agent_end *end);

/* The exit status by which a shell reports a wait status. */
int shell_status(int status);
