#pragma once

#include <stdbool.h>

/* Gives every signal its default action and blocks none: what a program expects to be started with. */
void reset_signals(void);

/* RLIMIT_NOFILE becomes what the system gives a process (1024, at most 524288), or less where less is allowed. */
bool reset_open_files_limit(void);

/* oom_score_adj becomes 0. Returns false with errno set. */
bool reset_oom_score(void);

/* A nice value below 0 becomes 0: what is better was the agent's. Returns false with errno set. */
bool reset_nice(void);
