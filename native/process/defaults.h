#pragma once

#include <stdbool.h>

/* Sets every signal to its default action and unblocks all, as a program expects at its start. */
void reset_signals(void);

/* Lowers RLIMIT_NOFILE to the usual 1024 (soft) and 524288 (hard). Returns false with errno set. */
bool reset_open_files_limit(void);

bool reset_oom_score(void);

/* Raises a negative nice value, which is the agent's, to 0. Returns false with errno set. */
bool reset_nice(void);
