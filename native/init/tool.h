#pragma once

/* Becomes `program`, whose arguments `command` begin with its name, rid of what the agent has raised for itself. Returns only an exit status: 125
 * when the process could not be prepared, 126 when the program cannot be executed, 127 when there is none. */
int run_tool(const char *program, char *const command[]);
