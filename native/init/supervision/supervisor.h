#pragma once

#include <stdbool.h>
#include <stdnoreturn.h>

/* Runs and restarts `command`, ended by NULL, as the agent. Powers off in init mode, or exits with its status. */
noreturn void supervise(bool init_mode, char *const command[]);
