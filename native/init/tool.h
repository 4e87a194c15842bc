#pragma once

/* Becomes the program `command`, rid of what the agent has raised for itself. Returns only an exit status: 125
 * when the process could not be prepared, 126 when the program cannot be executed, 127 when there is none. */
int run_tool(char *const command[]);
