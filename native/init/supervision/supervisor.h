#pragma once

#include <stdbool.h>
#include <stdnoreturn.h>

/*
 * Runs `command`, which ends with NULL, as the agent, and restarts it when it dies. Reaps every process that ends and
 * reports it to the agent. Ends vminit: in init mode it powers the machine off, otherwise it exits with the agent's
 * status.
 */
noreturn void supervise(bool init_mode, char *const command[]);
