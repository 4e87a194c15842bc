#pragma once

/* Prepares the guest for the agent: mounts, console, root, kernel settings. Powers off when that fails. */
void boot(void);
