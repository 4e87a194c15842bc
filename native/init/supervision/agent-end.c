#include "agent-end.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* The agent's status for wrong arguments or settings. */
#define EXIT_USAGE 2

int shell_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void describe_end(int status, char text[END_TEXT_BYTES]) {
  const bool signaled = WIFSIGNALED(status);
  snprintf(text, END_TEXT_BYTES, signaled ? "was killed by signal %d" : "exited with status %d",
           signaled ? WTERMSIG(status) : WEXITSTATUS(status));
}

enum after_agent after_agent(const struct agent_end *end) {
  const bool has_exited = WIFEXITED(end->status);
  const bool is_done = has_exited && WEXITSTATUS(end->status) == EXIT_SUCCESS;
  /* An agent that has lost its policy exits with this status, too. An agent after a crash has valid settings. */
  const bool is_refused = has_exited && WEXITSTATUS(end->status) == EXIT_USAGE && !end->ends_with_agent;

  if (end->not_executed && end->is_first) return END_NOT_EXECUTABLE;
  if (end->end_requested) return END_AS_REQUESTED;
  if ((is_done || is_refused) && !end->init_mode) return END_FINISHED;
  if (is_refused && end->is_first) return END_WRONG_SETTINGS;
  if (end->ends_with_agent) return END_POLICY_LOST;
  return end->gate_opened ? RESTART_AT_ONCE : RESTART_DELAYED;
}
