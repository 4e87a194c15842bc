#pragma once

/* What comes before the agent in a guest: mounts, console, the root, kernel settings. Powers off when it cannot. */
void boot(void);
