#pragma once

#include <stdnoreturn.h>

#include "supervisor.h"

/* Starts the agent that is due. When it cannot be started, plans another attempt or ends vminit. */
void start_agent(struct supervisor *self);

/* The agent was reaped with the wait status `status`: ends vminit or plans a restart. */
void on_agent_exit(struct supervisor *self, int status);

/* Does what the agent has asked for on the channel. */
void obey_commands(struct supervisor *self);

/* Ends vminit: powers off in init mode, otherwise exits with `exit_status`. */
noreturn void finish(const struct supervisor *self, int exit_status);
