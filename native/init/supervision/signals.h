#pragma once

#include <stdbool.h>

struct signalfd_siginfo;

/* Blocks the handled signals. Returns a non-blocking signalfd for them, or -1 with errno set. */
int signals_open(bool init_mode);

bool signals_next(int fd, struct signalfd_siginfo *info);

/* Whether a process sent the signal: a terminal's signal has reached the agent already. */
bool signal_is_from_process(const struct signalfd_siginfo *info);

bool signal_requests_end(int number);
